package ctl

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The forms of lists.
const (
	formatTable  = "table"
	formatPretty = "pretty_table"
	formatJSON   = "json"
	formatCSV    = "csv"
)

// session is one run of a verb: the node it talks to and where its answer goes.
type session struct {
	*client
	opt options
	out io.Writer
	buf bytes.Buffer
}

// say prints the line that tells what is being done; what reads the output by machine
// does not get it.
func (s *session) say(format string, args ...any) {
	if s.mute() {
		return
	}
	s.buf.WriteString(visibleLines(fmt.Sprintf(format, args...)))
	s.buf.WriteByte('\n')
}

// mute tells whether only results are wanted.
func (s *session) mute() bool {
	return s.opt.quiet || s.opt.silent || s.opt.formatter != formatTable
}

// printf prints a result that is no list.
func (s *session) printf(format string, args ...any) { fmt.Fprintf(&s.buf, format, args...) }

// flush writes what was printed.
func (s *session) flush() error {
	_, err := s.out.Write(s.buf.Bytes())
	s.buf.Reset()
	return err
}

// row is one object of a list: the value of each column by its name.
type row = map[string]any

// list prints rows: columns with tabs between them under a line of their names, or an array of
// JSON objects, or CSV.
func (s *session) list(columns []string, rows []row) error {
	switch s.opt.formatter {
	case formatJSON:
		return s.listJSON(columns, rows)
	case formatCSV:
		w := csv.NewWriter(&s.buf)
		if s.headers() {
			if err := w.Write(columns); err != nil {
				return err
			}
		}
		for _, r := range rows {
			if err := w.Write(cells(columns, r, func(v any) string { return cell(v) })); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	}
	if s.opt.pretty {
		s.listPretty(columns, rows)
		return nil
	}
	if s.headers() && len(rows) > 0 {
		s.printf("%s\n", strings.Join(columns, "\t"))
	}
	for _, r := range rows {
		s.printf("%s\n", strings.Join(cells(columns, r, func(v any) string { return visible(cell(v)) }), "\t"))
	}
	return nil
}

// listPretty draws frames around the cells.
func (s *session) listPretty(columns []string, rows []row) {
	if len(rows) == 0 {
		return
	}
	var lines [][]string
	if s.headers() {
		lines = append(lines, columns)
	}
	for _, r := range rows {
		lines = append(lines, cells(columns, r, func(v any) string { return visible(cell(v)) }))
	}
	wide := make([]int, len(columns))
	for _, line := range lines {
		for i, text := range line {
			wide[i] = max(wide[i], utf8.RuneCountInString(text))
		}
	}
	rule := func(left, between, right string) {
		parts := make([]string, len(wide))
		for i, n := range wide {
			parts[i] = strings.Repeat("─", n+2)
		}
		s.printf("%s%s%s\n", left, strings.Join(parts, between), right)
	}
	rule("┌", "┬", "┐")
	for i, line := range lines {
		if i > 0 {
			rule("├", "┼", "┤")
		}
		for j, text := range line {
			s.printf("│ %s%s ", text, strings.Repeat(" ", wide[j]-utf8.RuneCountInString(text)))
		}
		s.printf("│\n")
	}
	rule("└", "┴", "┘")
}

func (s *session) headers() bool { return !s.opt.silent && !s.opt.noHeaders }

// listJSON keeps the order of the columns, which a map would lose.
func (s *session) listJSON(columns []string, rows []row) error {
	s.buf.WriteByte('[')
	for i, r := range rows {
		if i > 0 {
			s.buf.WriteByte(',')
		}
		s.buf.WriteString("\n{")
		for j, c := range columns {
			if j > 0 {
				s.buf.WriteByte(',')
			}
			raw, err := json.Marshal(r[c])
			if err != nil {
				return err
			}
			fmt.Fprintf(&s.buf, "%q:%s", c, raw)
		}
		s.buf.WriteByte('}')
	}
	s.buf.WriteString("\n]\n")
	return nil
}

func cells(columns []string, r row, f func(any) string) []string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = f(r[c])
	}
	return list
}

// cell is the text of a value: objects and arrays in JSON, nothing for null.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// visibleLines is visible for what may have several lines: names that somebody else has chosen are in them.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// visible writes characters that would break a table, or do worse to a terminal, as
// escapes.
func visible(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}
