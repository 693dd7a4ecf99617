package rabbitconf

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// FileBytesMax bounds a file.
const FileBytesMax = 1 << 20

// Entry is a line that sets something.
type Entry struct {
	File string
	Line int
	// Key has its parts joined by points; a point inside a part is written `\.`, as in the file.
	Key, Value string
}

// Place is the file and the line, for people.
func (e Entry) Place() string { return fmt.Sprintf("%s:%d", oneLine(e.File), e.Line) }

// Read reads the content of a file. The error names the first line that RabbitMQ would not read either; name only appears in it and in entries.
func Read(name string, content []byte) ([]Entry, error) {
	if len(content) > FileBytesMax {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, FileBytesMax)
	}
	if !utf8.Valid(content) {
		return nil, fmt.Errorf("%s: is not UTF-8 text", name)
	}
	var entries []Entry
	for number := 1; len(content) > 0; {
		line, rest, _ := bytes.Cut(content, []byte("\n"))
		at := Entry{File: name, Line: number}
		number++
		text := strings.Trim(strings.TrimSuffix(string(line), "\r"), " \t")
		if text == "" || text[0] == '#' {
			content = rest
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		if at.Key = strings.TrimRight(key, " \t"); !ok || !isKey(at.Key) {
			if what, ok := strings.CutPrefix(text, "include"); ok && strings.HasPrefix(what, " ") {
				return nil, fmt.Errorf("%s: include is not followed: give the files that it names as well, in the order in which they count", at.Place())
			}
			return nil, fmt.Errorf("%s: expected KEY = VALUE, got %q", at.Place(), text)
		}
		value = strings.TrimLeft(value, " \t")
		if strings.HasPrefix(value, "'") { // it may go on over several lines, and have # in it
			quoted := content[bytes.IndexByte(content, '\'')+1:]
			inside, after, closed := bytes.Cut(quoted, []byte("'"))
			if !closed {
				return nil, fmt.Errorf("%s: %s: the quotation mark is not closed", at.Place(), at.Key)
			}
			behind, next, _ := bytes.Cut(after, []byte("\n"))
			if left := strings.Trim(string(behind), " \t\r"); left != "" && left[0] != '#' {
				return nil, fmt.Errorf("%s: %s: there is %q behind the value", at.Place(), at.Key, left)
			}
			at.Value, rest = string(inside), next
			number += bytes.Count(inside, []byte("\n"))
		} else {
			value, _, _ = strings.Cut(value, "#")
			if at.Value = strings.TrimRight(value, " \t"); at.Value == "" {
				return nil, fmt.Errorf("%s: %s has no value", at.Place(), at.Key)
			}
		}
		entries = append(entries, at)
		content = rest
	}
	return entries, nil
}

const keyRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// isKey tells whether s consists of parts of letters, digits, dashes, underscores and escaped points, with points between them.
func isKey(s string) bool {
	for part := range strings.SplitSeq(strings.ReplaceAll(s, `\.`, "_"), ".") {
		if part == "" || strings.Trim(part, keyRunes) != "" {
			return false
		}
	}
	return true
}
