"""Holds the heights of testdata/place against a general integer program solver.

Each small instance becomes the usual program: an offset per buffer, one binary
per pair that is live together, minimise the height. HiGHS must agree with every
height that memoc calls optimal.
"""

import csv
import math
import pathlib
import sys

import highspy

HERE = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "place"
LARGEST = 20  # buffers; beyond that the program takes too long


def steps(row):
    """The steps at which a buffer owns its bytes."""
    live = set(range(int(row["lower"]), int(row["upper"])))
    for gap in (row.get("gaps") or "").split():
        a, b = gap.split("-")
        live -= set(range(int(a), int(b)))
    return live if int(row["size"]) > 0 else set()


def optimum(path):
    rows = list(csv.DictReader(open(path)))
    rows = [r for r in rows if steps(r)]
    align = [int(r.get("alignment") or 1) for r in rows]
    fixed = [r.get("offset") or "" for r in rows]
    grain = math.gcd(*[int(f) if f else a for f, a in zip(fixed, align)]) or 1
    size = [-(-int(r["size"]) // grain) * grain for r in rows]
    top = sum(size) + sum(align) + sum(int(f) for f in fixed if f)

    h = highspy.Highs()
    h.setOptionValue("output_flag", False)
    height = h.addVariable(0, top)
    at = []
    for r, f, a in zip(rows, fixed, align):
        k = h.addVariable(0, top // a, type=highspy.HighsVarType.kInteger)
        at.append(k * a)
        if f:
            h.addConstr(k * a == int(f))
    for i in range(len(rows)):
        h.addConstr(at[i] + size[i] <= height)
        for j in range(i):
            if steps(rows[i]) & steps(rows[j]):
                above = h.addBinary()
                h.addConstr(at[i] + size[i] <= at[j] + top * above)
                h.addConstr(at[j] + size[j] <= at[i] + top * (1 - above))
    h.minimize(height)
    return round(h.getInfo().objective_function_value)


def main():
    bad = checked = 0
    for line in (HERE / "heights.txt").read_text().splitlines()[1:]:
        name, buffers, _, height, status = line.split()
        if int(buffers) > LARGEST or status != "optimal":
            continue
        want = optimum(HERE / f"{name}.csv")
        checked += 1
        if want != int(height):
            print(f"{name}: height {height} is called optimal, HiGHS finds {want}")
            bad += 1
    print(f"placement: {checked} instances agree with HiGHS" if not bad else f"{bad} of {checked} differ")
    sys.exit(bad > 0 or checked == 0)


main()
