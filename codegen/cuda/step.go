package cuda

import (
	"fmt"
	"strings"

	"memoc/ir"
)

// stepSource renders step.cu.
func (e *emitter) stepSource() string {
	var b strings.Builder
	e.writeHead(&b)
	for i, c := range e.consts {
		fmt.Fprintf(&b, "const unsigned char constant_%d[] = {%s};\n", i, byteList(c.data))
	}
	for i, l := range e.kernels.launches {
		fmt.Fprintf(&b, "// %s\nvoid launch_%d(Stream& s, const Args& a) {\n  %s\n}\n\n", commentText(l.comment), i, l.body)
	}
	e.writeTables(&b)
	e.writeSteps(&b)
	e.writeTensors(&b)
	b.WriteString("}  // namespace\n\n")
	e.writeProgram(&b)
	b.WriteString("}  // namespace memoc\n")
	return b.String()
}

func (e *emitter) writeHead(b *strings.Builder) {
	p := e.p
	fmt.Fprintf(b, "// Step %s, emitted by memoc for %s.\n//\n", commentText(p.Name), commentText(p.Device))
	for i, a := range p.Arenas {
		fmt.Fprintf(b, "// arena %d (%s): %d bytes, lower bound %d\n", i, commentText(a.Name), a.Size, a.LowerBound)
	}
	for i, l := range p.Lanes {
		fmt.Fprintf(b, "// lane %d: %s\n", i, commentText(l.Name))
	}
	fmt.Fprintf(b, "// %d steps, %d launch functions, %d events; predicted %d ns, of which %d ns are stalls\n", len(e.rows), len(e.kernels.launches),
		len(e.events), p.Metrics.Time, p.Metrics.Stall)
	b.WriteString("//\n// A step is a row of the table \"steps\"; the other tables hold what rows refer to as {first, count}.\n")
	b.WriteString("#include \"kernels.h\"\n#include \"memoc/program.h\"\n\nnamespace memoc {\nnamespace {\n\n")
	b.WriteString("[[maybe_unused]] constexpr Space device = Space::device, host = Space::host;\n\n")
}

// table is one flat array that rows refer to by first and count.
type table struct {
	b     strings.Builder
	count int
}

func (t *table) add(step int, entries []string) string {
	first := t.count
	if len(entries) > 0 {
		fmt.Fprintf(&t.b, "    %s,  // %d\n", strings.Join(entries, ", "), step)
	}
	t.count += len(entries)
	return fmt.Sprintf("{%d, %d}", first, len(entries))
}

func (t *table) write(b *strings.Builder, decl, empty string) {
	if t.count == 0 {
		fmt.Fprintf(b, "%s[] = {%s};\n\n", decl, empty)
		return
	}
	fmt.Fprintf(b, "%s[] = {\n%s};\n\n", decl, t.b.String())
}

// writeTables writes the flat tables; each row keeps its references to them.
func (e *emitter) writeTables(b *strings.Builder) {
	var buffers, copies, ranges, waits, freed table
	for i := range e.rows {
		r := &e.rows[i]
		r.refs[0] = buffers.add(i, mapText(r.buffers, intText))
		r.refs[1] = copies.add(i, mapText(r.copies, copyText))
		r.refs[2] = ranges.add(i, mapText(r.ranges, rangeText))
		r.refs[3] = waits.add(i, mapText(r.waits, func(w int) string { return fmt.Sprint(w) }))
		r.refs[4] = freed.add(i, mapText(r.freed, freedText))
	}
	b.WriteString("// Offsets in the device arena of what each launch takes.\n")
	buffers.write(b, "const int64_t buffers", "0")
	copies.write(b, "const Copy copies", "{device, 0, 0, device, 0, 0, 0, 0}")
	b.WriteString("#if MEMOC_HOST  // what each step touches and which lives it ends: for the checks of the host runtime\nconstexpr bool reads = false, writes = true;\n\n")
	ranges.write(b, "const Range ranges", "{device, reads, 0, 0, 1, 0}")
	freed.write(b, "const Freed freed", "{device, 0, 0, \"\"}")
	b.WriteString("#else\nconst Range* const ranges = nullptr;\nconst Freed* const freed = nullptr;\n#endif\n\n// Events to wait for.\n")
	waits.write(b, "const int32_t waits", "0")
}

func mapText[T any](xs []T, f func(T) string) []string {
	out := make([]string, len(xs))
	for i, x := range xs {
		out[i] = f(x)
	}
	return out
}

func spaceText(arena int) string {
	if arena == ir.HostArena {
		return "host"
	}
	return "device"
}

func copyText(c copyRow) string {
	return fmt.Sprintf("{%s, %d, %d, %s, %d, %d, %d, %d}", spaceText(c.dst.arena), c.dst.off, c.dst.stride,
		spaceText(c.src.arena), c.src.off, c.src.stride, c.src.n, c.src.count)
}

func rangeText(r rangeRow) string {
	dir := "reads"
	if r.write {
		dir = "writes"
	}
	return fmt.Sprintf("{%s, %s, %d, %d, %d, %d}", spaceText(r.arena), dir, r.off, r.n, r.count, r.stride)
}

func freedText(f *ir.Buffer) string {
	return fmt.Sprintf("{%s, %d, %d, %s}", spaceText(f.Arena), f.Offset, f.Size, cString(f.Name))
}

func (e *emitter) writeSteps(b *strings.Builder) {
	b.WriteString("// name, lane, launch, buffers, copies, ranges, waits, freed, event recorded after it, name hash for random numbers\nconst Step steps[] = {\n")
	for i := range e.rows {
		r := &e.rows[i]
		launch := "nullptr"
		if r.launch >= 0 {
			launch = fmt.Sprintf("launch_%d", r.launch)
		}
		record := -1
		if ev, ok := e.events[i]; ok {
			record = ev
		}
		fmt.Fprintf(b, "    {%s, %d, %s, %s, %d, %#xu},  // %d%s\n", cString(r.name), r.step.Lane, launch,
			strings.Join(r.refs[:], ", "), record, r.random, i, remark(r))
	}
	if len(e.rows) == 0 {
		b.WriteString("    {\"\", 0, nullptr, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, -1, 0},\n")
	}
	b.WriteString("};\n\n")
}

func remark(r *row) string {
	s := ""
	if r.step.Node != nil {
		s = " " + r.step.Node.FullOp()
	}
	if r.remark != "" {
		s += ": " + r.remark
	}
	return commentText(s)
}

func (e *emitter) writeTensors(b *strings.Builder) {
	b.WriteString("// name, role, element type, rank, dims, bytes, file, offset in it\nconst memoc_tensor tensors[] = {\n")
	for _, t := range e.tensors {
		file := "nullptr"
		switch {
		case t.inBin:
			file = `""`
		case t.contents != nil:
			file = cString(t.file)
		}
		dims := "{" + strings.Join(mapText(t.dims, intText), ", ") + "}"
		fmt.Fprintf(b, "    {%s, %s, %d, %d, %s, %d, %s, %d},\n", cString(t.value.Name), t.role, t.value.Type.DType, len(t.dims), dims, t.bytes, file, t.fileOff)
	}
	if len(e.tensors) == 0 {
		b.WriteString("    {\"\", 0, 0, 0, {}, 0, nullptr, 0},\n")
	}
	b.WriteString("};\n\n// Where they are in the device arena.\nconst int64_t tensor_offsets[] = {")
	for _, t := range e.tensors {
		fmt.Fprintf(b, "%d, ", t.offset)
	}
	b.WriteString("0};\n\n")
}

func (e *emitter) writeProgram(b *strings.Builder) {
	host := int64(0)
	if len(e.p.Arenas) > ir.HostArena {
		host = e.p.Arenas[ir.HostArena].Size
	}
	fmt.Fprintf(b, "const Program program = {\n    %s,\n    %d, %d,  // lanes, events\n    %d, %d,  // bytes of the device and the host arena\n",
		cString(e.p.Name), len(e.p.Lanes), len(e.events), e.p.Arenas[ir.DeviceArena].Size, host)
	fmt.Fprintf(b, "    steps, %d, buffers, copies, ranges, waits, freed, tensors, tensor_offsets, %d,\n};\n\n", len(e.rows), len(e.tensors))
}

// cString is s as a C string literal. Octal escapes end by themselves, unlike
// hexadecimal ones.
func cString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '?':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// commentText makes s safe at the end of a line comment.
func commentText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return strings.ReplaceAll(s, "\\", "/")
}

func byteList(data []byte) string {
	parts := make([]string, len(data))
	for i, x := range data {
		parts[i] = fmt.Sprint(x)
	}
	return strings.Join(parts, ",")
}
