package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pandovm/pando/api"
)

// print writes a line of the result.
func (a *app) print(format string, args ...any) error {
	if _, err := fmt.Fprintf(a.IO.Out, format+"\n", args...); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// printJSON writes the result for programs.
func (a *app) printJSON(v any) error {
	return writeJSON(a.IO.Out, v)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// table is text in aligned columns under a head.
type table struct {
	head []string
	rows [][]string
	// flexible is the column that gives way on a narrow terminal; -1 for none.
	flexible int
}

func newTable(flexible int, head ...string) *table {
	return &table{head: head, flexible: flexible}
}

func (t *table) add(cells ...string) {
	for i, c := range cells {
		cells[i] = printable(c)
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

const (
	gutter      = "  "
	narrowest   = 8
	cutOffMark  = "…"
	emptyColumn = -1
)

// write prints the table; width of 0 means that rows may be as long as they are.
func (t *table) write(w io.Writer, width int) error {
	widths := t.widths()
	t.fit(widths, width)
	var b strings.Builder
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			cell = cut(cell, widths[i])
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)) + gutter)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (t *table) widths() []int {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// fit shrinks the flexible column until a row is at most width wide.
func (t *table) fit(widths []int, width int) {
	if width == 0 || t.flexible == emptyColumn {
		return
	}
	total := len(gutter) * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	if total > width {
		widths[t.flexible] = max(min(narrowest, widths[t.flexible]), widths[t.flexible]-(total-width))
	}
}

func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + cutOffMark
}

// printTable writes the table, fitted to the terminal if there is one.
func (a *app) printTable(t *table) error {
	width := 0
	if a.IO.OutTerminal {
		width = a.IO.Width
	}
	return t.write(a.IO.Out, width)
}

// block is a list of labelled values, empty ones left out.
type block struct{ lines [][2]string }

func (b *block) add(label, value string) {
	if value != "" {
		b.lines = append(b.lines, [2]string{label + ":", printable(value)})
	}
}

func (a *app) printBlock(b *block) error {
	widest := 0
	for _, l := range b.lines {
		widest = max(widest, len(l[0]))
	}
	for _, l := range b.lines {
		if err := a.print("%-*s  %s", widest, l[0], l[1]); err != nil {
			return err
		}
	}
	return nil
}

// printable replaces what could move the cursor or change the terminal: names
// come from other people.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// age is the time since t in its largest unit: 40s, 3m, 5h, 12d.
func (a *app) age(t time.Time) string { return ageText(a.Now().Sub(t)) }

// ageText is a length of time in its largest unit.
func ageText(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// moment is t in the time zone of the clock, with its age.
func (a *app) moment(t time.Time) string {
	return fmt.Sprintf("%s (%s ago)", t.In(a.Now().Location()).Format(time.DateTime), a.age(t))
}

// took shows how long something lasted since start.
func (a *app) took(start time.Time) string {
	return seconds(a.Now().Sub(start))
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func millis(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }

// mebibytes shows a size given in MiB.
func mebibytes(n int) string { return bytesText(int64(n) << 20) }

// bytesText shows a size in the largest unit that keeps it above 1.
func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1<<10 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0")
	return text + " " + units[unit:unit+1] + "iB"
}

// resources shows the size of a VM in words.
func resources(r api.Resources) string {
	return fmt.Sprintf("%s, %s memory, %s disk", count(r.CPU, "vCPU"), mebibytes(r.Memory), mebibytes(r.Storage))
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// text is the string that p points to, or nothing.
func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// optional is a pointer to s, or nil for nothing.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
