"""Holds the times of planned steps against lower bounds of a general solver.

Usage: plan_oracle.py FILE.json... [--seconds N] [--limit GAP] [--cuts N] [--from K] [--table]

Each file holds a step (operations in order over tensors, copy rates) and, for
some budgets of device memory, the time of memoc's plan. For each budget HiGHS
minimises the time of a mixed-integer program that every schedule with this
order of operations satisfies:

- Computation, copies out and copies in are three lanes. Operation i starts at
  T[i]; between it and the one before it any clones run, each counted once.
- Before each operation of the step, each of its inputs must have stayed from
  the operation before, come in by a copy, or have been made by a clone, whose
  inputs must have been there in the same way.
- During each operation all that stays, its inputs, its outputs and its workspace
  fit the budget; an output may take over the bytes of an input that ends there.
- A copied tensor is on the device until its copy out has ended, and again from
  the operation before which its copy in starts. For every two operations, the
  copies that lie between them as a whole fit into the time between them.
- The host holds a tensor from the end of its copy out to its last copy in.

- While a clone runs, its inputs, outputs and workspace fit beside what is there
  from the operation before to the one behind, what other clones that wait for it
  read, and of two inputs that clones make, the one made first. A tensor comes to
  be there at most once between two operations, as in all that memoc does.

Leaving out what would only bind further (the order of copies on a lane, copies
in during clones) makes it a relaxation: its optimum, or where time runs out its
proven bound, is no greater than the time of the best such schedule. So the gap that is
printed is never smaller than the true one. Where there are more operations than
cuts, memory and copies are looked at in some of them only.
"""

import argparse
import collections
import json
import sys

import highspy

INF = highspy.kHighsInf


class Program:
    """A step as a mixed-integer program, without its budget."""

    def __init__(self, p, cuts):
        self.p, self.h = p, highspy.Highs()
        self.h.setOptionValue("output_flag", False)
        self.ops, self.tensors = p["Ops"], p["Tensors"]
        n = len(self.ops)
        self.cuts = cuts if cuts is not None else list(range(n))
        self.maker = {t: i for i, o in enumerate(self.ops) for t in o["Out"]}
        self.segment = [0] * n  # of op i: how many cuts are before it
        s = 0
        for i in range(n):
            self.segment[i] = s
            if s < len(self.cuts) and self.cuts[s] == i:
                s += 1
        self.reads = {t: [] for t in self.maker}
        for i, o in enumerate(self.ops):
            for t in set(o["In"] or []):
                self.reads[t].append(i)
        self.columns, self.budget_rows = 0, []
        self.rows()

    # Columns and rows by index: quicker than expressions.

    def column(self, upper=1.0, integer=True):
        self.h.addVar(0.0, upper)
        if integer:
            self.h.changeColIntegrality(self.columns, highspy.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def row(self, low, high, terms):
        sums = collections.defaultdict(float)
        for c, x in terms:
            sums[c] += x
        keys = list(sums)
        self.h.addRow(low, high, len(keys), keys, [sums[k] for k in keys])
        return self.h.getNumRow() - 1

    def copied(self, t):
        x = self.tensors[t]
        p = self.p
        return p["HostBytes"] > 0 and min(p["OutRate"], p["InRate"]) > 0 and x["Bytes"] > 0 and not (
            x["Output"] or x["Derived"] or x["Spread"]) and len(self.reads[t]) > 0

    def cloned(self, i):
        return self.ops[i]["Clone"]

    def rows(self):
        """Segment s ends with cut s; the last one ends with the step."""
        segments = len(self.cuts) + (self.cuts[-1] < len(self.ops) - 1)
        names = ["stay", "after", "made", "arrive", "flight", "out"]
        self.v = {name: {} for name in names}
        v = self.v
        self.swap = {}
        self.start = [self.column(INF, False) for _ in range(segments + 1)]  # of cut s; the last: the end
        for t, i in self.maker.items():
            born = self.segment[i]
            if self.copied(t):
                self.swap[t] = self.column()
            for s in range(born, segments):
                cut = self.cuts[s] if s < len(self.cuts) else None
                if cut is not None and (cut >= i):
                    v["stay"][s, t] = self.column()  # there during the cut's operation
                    v["after"][s, t] = self.column()  # and after it
                    self.row(-INF, 0, [(v["after"][s, t], 1), (v["stay"][s, t], -1)])
                if cut is not None and t in self.swap and cut > i:
                    v["out"][s, t] = self.column()  # its copy out ended before the cut
                    v["flight"][s, t] = self.column()  # a copy in has started, and not ended
                if s > born and t in self.swap:
                    v["arrive"][s, t] = self.column()  # a copy in ends in the segment
        for i, o in enumerate(self.ops):
            if self.cloned(i):
                for s in range(self.segment[i] + 1, segments):
                    v["made"][s, i] = self.column()
        for t in self.maker:
            self.tensor_rows(t, segments)
        for s in range(segments):
            self.segment_rows(s)
        self.lane_rows(segments)
        self.h.changeColCost(self.start[segments], 1.0)
        self.segments = segments

    def sources(self, s, t):
        """Columns one of which must be set for t to be there in segment s."""
        v = self.v
        out = []
        if (s - 1, t) in v["after"]:
            out.append(v["after"][s - 1, t])
        if (s, t) in v["arrive"]:
            out.append(v["arrive"][s, t])
        if (s, self.maker[t]) in v["made"]:
            out.append(v["made"][s, self.maker[t]])
        return out

    def tensor_rows(self, t, segments):
        v, i = self.v, self.maker[t]
        born = self.segment[i]
        x = self.tensors[t]
        for s in range(born, segments):
            if (s, t) in v["stay"]:
                stay = v["stay"][s, t]
                if s > born:
                    self.row(0, INF, [(c, 1) for c in self.sources(s, t)] + [(stay, -1)])
                if x["Output"]:
                    self.row(1, 1, [(stay, 1)])
                    self.row(1, 1, [(v["after"][s, t], 1)])
            if (s, t) in v["out"]:
                out = v["out"][s, t]
                self.row(-INF, 0, [(out, 1), (self.swap[t], -1)])
                # The source stays until the copy has ended.
                self.row(0, INF, [(v["stay"][s, t], 1), (self.swap[t], -1), (out, 1)])
                if s > 0 and (s - 1, t) in v["stay"]:
                    self.row(0, INF, [(v["after"][s - 1, t], 1), (self.swap[t], -1), (out, 1)])
                if (s - 1, t) in v["out"]:
                    self.row(0, INF, [(out, 1), (v["out"][s - 1, t], -1)])
            if (s, t) in v["flight"]:
                flight = v["flight"][s, t]
                # Once under way a copy in is under way until it ends.
                nxt = [(v[k][s + 1, t], 1) for k in ("flight", "arrive") if (s + 1, t) in v[k]]
                self.row(0, INF, nxt + [(flight, -1)])
                self.row(-INF, 0, [(flight, 1), (self.swap[t], -1)])
            if (s, t) in v["arrive"]:
                if (s, t) in v["out"]:
                    self.row(0, INF, [(v["out"][s, t], 1), (v["arrive"][s, t], -1)])
                else:
                    self.row(0, INF, [(self.swap[t], 1), (v["arrive"][s, t], -1)])

    def segment_rows(self, s):
        v, p = self.v, self.p
        first = self.cuts[s - 1] + 1 if s > 0 else 0
        cut = self.cuts[s] if s < len(self.cuts) else None
        end = cut + 1 if cut is not None else len(self.ops)
        # Inputs that the segment has not made itself.
        for i in range(first, end):
            for t in set(self.ops[i]["In"] or []):
                if self.maker[t] < first:
                    self.row(1, INF, [(c, 1) for c in self.sources(s, t)])
        for i, o in enumerate(self.ops):
            if (s, i) in v["made"]:
                for t in set(o["In"] or []):
                    if self.maker[t] < first:
                        self.row(0, INF, [(c, 1) for c in self.sources(s, t)] + [(v["made"][s, i], -1)])
        self.clone_rows(s, first)
        # Time: T[s] is when the cut's operation starts, or the step ends.
        runs = [self.ops[i]["Time"] for i in range(max(first - 1, 0) if s > 0 else first, end if cut is None else end - 1)]
        terms = [(self.start[s], 1)]
        if s > 0:
            terms.append((self.start[s - 1], -1))
        terms += [(v["made"][s, i], -self.ops[i]["Time"]) for i in range(first) if (s, i) in v["made"]]
        self.row(sum(runs), INF, terms)
        if cut is None:
            self.row(0, INF, [(self.start[s + 1], 1), (self.start[s], -1)])
            return
        if s == len(self.cuts) - 1 and cut == len(self.ops) - 1:
            self.row(self.ops[cut]["Time"], INF, [(self.start[s + 1], 1), (self.start[s], -1)])
        o = self.ops[cut]
        for t in set((o["In"] or []) + o["Out"]):
            self.row(1, 1, [(v["stay"][s, t], 1)])
        terms = [(c, self.tensors[t]["Bytes"]) for (k, t), c in v["stay"].items() if k == s]
        terms += [(c, self.tensors[t]["Bytes"]) for (k, t), c in v["flight"].items() if k == s]
        free = 0
        for a in o["InPlace"] or []:
            bytes = self.tensors[a["In"]]["Bytes"]
            if bytes == self.tensors[a["Out"]]["Bytes"] and not self.tensors[a["In"]]["Output"]:
                free += bytes
                terms.append((v["after"][s, a["In"]], bytes))
        self.budget_rows.append((self.row(-INF, INF, terms), free - o["Workspace"]))
        host = [(t, c) for (k, t), c in v["out"].items() if k == s]
        if sum(self.tensors[t]["Bytes"] for t in self.swap) > p["HostBytes"] and host:
            held = []
            for t, c in host:
                on = self.column(integer=False)
                for (k, u), a in v["arrive"].items():
                    if u == t and k > s:
                        self.row(-1, INF, [(on, 1), (c, -1), (a, -1)])
                held.append((on, self.tensors[t]["Bytes"]))
            self.row(-INF, p["HostBytes"], held)

    def clone_rows(self, s, first):
        """Memory while a clone runs: its inputs and outputs, and what else must be there then."""
        v = self.v
        clones = [i for i in range(first) if (s, i) in v["made"]]
        if not clones or s >= len(self.cuts):
            return
        hold = self.held(s)
        alive = {i: {} for i in clones}
        if self.cuts[s] == first:
            self.waiting(s, clones, alive)
        for i in clones:
            o = self.ops[i]
            own = set((o["In"] or []) + o["Out"])
            for t, c in alive[i].items():
                if t in hold and t not in own:
                    self.row(0, INF, [(c, 1), (hold[t], -1)])
            there = {t: alive[i].get(t, hold.get(t)) for t in set(hold) | set(alive[i])}
            bytes = o["Workspace"] + sum(self.tensors[t]["Bytes"] for t in own)
            terms = [(c, self.tensors[t]["Bytes"]) for t, c in there.items() if t not in own]
            for out in set(a["Out"] for a in o["InPlace"] or []):
                # In place only of an input that does not stay.
                size = self.tensors[out]["Bytes"]
                bytes -= size
                inputs = [a["In"] for a in o["InPlace"] if a["Out"] == out]
                if all((s, t) in v["stay"] for t in inputs):
                    whole = self.column(integer=False)
                    self.row(-INF, len(inputs), [(v["made"][s, i], 1)] + [(v["stay"][s, t], 1) for t in inputs] + [(whole, -1)])
                    terms.append((whole, size))
            self.budget_rows.append((self.row(-INF, INF, terms + [(v["made"][s, i], bytes)]), 0))

    def renewed(self, s, t):
        """Terms that are below zero where t comes to be there within segment s."""
        v = self.v
        keys = (("made", self.maker[t]), ("arrive", t))
        return [(v[k][s, x], -1) for k, x in keys if (s, x) in v[k]]

    def held(self, s):
        """Columns that are set where a tensor is there from one cut to the next."""
        v, hold = self.v, {}
        for t in self.maker:
            ends = [(v[k][s, t], 1) for k in ("stay", "flight") if (s, t) in v[k]]
            if (s - 1, t) not in v["after"] or not ends:
                continue
            hold[t] = self.column(integer=False)
            self.row(-INF, 1, [(v["after"][s - 1, t], 1), (v["stay"][s, t], 1)] + self.renewed(s, t) + [(hold[t], -1)])
            if (s - 1, t) in v["flight"]:
                made = [(c, x) for c, x in self.renewed(s, t) if c != v["arrive"].get((s, t))]
                for end in ends:
                    self.row(-INF, 1, [(v["flight"][s - 1, t], 1), end] + made + [(hold[t], -1)])
        return hold

    def waiting(self, s, clones, alive):
        """What a clone reads waits while those run that make its other inputs."""
        v, made = self.v, self.v["made"]
        single = lambda t: (s, self.maker[t]) in made and len(self.ops[self.maker[t]]["Out"]) == 1
        def wait(j, t):
            if t not in alive[j]:
                alive[j][t] = self.column(integer=False)
            return alive[j][t]
        for i in reversed(clones + [self.cuts[s]]):
            inputs = sorted(set(self.ops[i]["In"] or []))
            on = [(made[s, i], 1)] if (s, i) in made else []
            if on:
                for t in inputs:
                    self.row(0, INF, [(wait(i, t), 1), (made[s, i], -1)] + [(c, -x) for c, x in self.renewed(s, t)])
            makers = [self.maker[t] for t in inputs if single(t)]
            for j in makers:
                for t in list(alive[i]) if on else []:
                    if t not in self.ops[j]["Out"]:
                        self.row(-1, INF, [(wait(j, t), 1), (alive[i][t], -1), (made[s, j], -1)])
            # Of two inputs that are made here one is there while the other is made.
            for k, a in enumerate(makers):
                for b in makers[:k]:
                    x, y = self.ops[a]["Out"][0], self.ops[b]["Out"][0]
                    if y in (self.ops[a]["In"] or []):
                        continue
                    both = [(made[s, a], -1), (made[s, b], -1)] + [(c, -1) for c, _ in on]
                    later = self.column()
                    self.row(-1 - len(on), INF, [(wait(a, y), 1), (later, 1)] + both)
                    self.row(-2 - len(on), INF, [(wait(b, x), 1), (later, -1)] + both)

    def lane_rows(self, segments):
        v, p = self.v, self.p
        out = lambda t: p["CopyLatency"] + int(self.tensors[t]["Bytes"] / p["OutRate"])
        back = lambda t: p["CopyLatency"] + int(self.tensors[t]["Bytes"] / p["InRate"])
        # Made in or after segment m (behind cut m-1), out before cut k.
        for m in range(len(self.cuts)):
            base = [(self.start[m - 1], -1)] if m > 0 else []
            done = self.ops[self.cuts[m - 1]]["Time"] if m > 0 else 0
            for k in range(m, len(self.cuts)):
                terms = [(c, -out(t)) for (s, t), c in v["out"].items() if s == k and self.segment[self.maker[t]] >= m]
                if terms:
                    self.row(done, INF, [(self.start[k], 1)] + base + terms)
        # The wait from a tensor's end to its copy out and to its copy back.
        for t in self.swap:
            i, born = self.maker[t], self.segment[self.maker[t]]
            before = sum(self.ops[j]["Time"] for j in range(self.cuts[born - 1] if born > 0 else 0, i + 1))
            base = [(self.start[born - 1], -1)] if born > 0 else []
            for s in range(born, segments):
                if (s, t) in v["out"]:
                    self.row(0, INF, [(self.start[s], 1)] + base + [(v["out"][s, t], -(out(t) + before))])
                if (s, t) in v["arrive"]:
                    self.row(0, INF, [(self.start[s], 1)] + base + [(v["arrive"][s, t], -(out(t) + back(t) + before))])
        # Copies in that start behind cut m-1 and end before cut k (or the end).
        for m in range(1, segments):
            done = self.ops[self.cuts[m - 1]]["Time"]
            for k in range(m, segments):
                terms = []
                for t in self.swap:
                    inside = [(v["arrive"][s, t], -back(t)) for s in range(m, k + 1) if (s, t) in v["arrive"]]
                    if inside:
                        terms += inside
                        if (m - 1, t) in v["flight"]:
                            terms.append((v["flight"][m - 1, t], back(t)))
                if terms:
                    self.row(done, INF, [(self.start[k], 1), (self.start[m - 1], -1)] + terms)

    def bound(self, budget, known, seconds):
        """A lower bound on the time of any schedule within budget, and whether it is the optimum of the program."""
        h = self.h
        for row, free in self.budget_rows:
            h.changeRowBounds(row, -INF, float(budget + free))
        h.changeColBounds(self.start[self.segments], 0.0, float(known) + 1)
        h.setOptionValue("time_limit", float(seconds))
        h.setOptionValue("threads", 1)
        h.setOptionValue("mip_rel_gap", 1e-4)
        h.clearSolver()
        h.run()
        status = h.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            raise SystemExit(f'no schedule takes {known} ns within {budget} bytes: the program forbids what memoc does')
        info = h.getInfo()
        # Every operation runs at least once, whatever the solver has come to know.
        once = sum(o["Time"] for o in self.ops)
        return min(max(info.mip_dual_bound, once), known), status == highspy.HighsModelStatus.kOptimal


def choose(p, count):
    """The operations that most bytes wait across, spread over the step."""
    n = len(p["Ops"])
    if count <= 0 or count >= n:
        return None
    last = {}
    for i, o in enumerate(p["Ops"]):
        for t in (o["In"] or []) + o["Out"]:
            last[t] = i
    live = [0] * n
    for i, o in enumerate(p["Ops"]):
        for t in o["Out"]:
            for k in range(i, last[t] + 1):
                live[k] += p["Tensors"][t]["Bytes"]
        live[i] += o["Workspace"]
    parts = [range(n * k // count, n * (k + 1) // count) for k in range(count)]
    return [max(part, key=lambda i: live[i]) for part in parts]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("files", nargs="+")
    a.add_argument("--seconds", type=float, default=20)
    a.add_argument("--limit", type=float, default=0.01)
    a.add_argument("--cuts", type=int, default=64)
    a.add_argument("--from", dest="first", type=int, default=1, help="the first budget that is looked at")
    a.add_argument("--table", action="store_true")
    a = a.parse_args()
    worst, total, count, bad = 0.0, 0.0, 0, 0
    for path in a.files:
        d = json.load(open(path))
        program = Program(d["problem"], choose(d["problem"], a.cuts))
        for k, c in enumerate(d["cells"]):
            if k + 1 < a.first:
                continue
            bound, exact = program.bound(c["Budget"], c["Time"], a.seconds)
            gap = c["Time"] / bound - 1
            worst, total, count, bad = max(worst, gap), total + gap, count + 1, bad + (gap > a.limit)
            if a.table or gap > a.limit:
                print(f"| {d['name']} | {k + 1} | {c['Budget']} | {c['Time']} | {bound:.0f}{'' if exact else ' *'} | {100 * gap:.2f} % |", flush=True)
    print(f"plan: {count} budgets of {len(a.files)} steps, within {100 * total / max(count, 1):.2f} % of the bound on average, {100 * worst:.2f} % at worst; {bad} beyond {100 * a.limit:.0f} %")
    sys.exit(bad > 0 or count == 0)


main()
