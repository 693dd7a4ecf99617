package rabbitconf

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Setting is one of Warren's, in the form of its flag.
type Setting struct {
	Name, Value string
	From        []Entry
}

// Remark is about what is not a setting.
type Remark struct {
	Entry
	Text string
	// Todo: somebody has to do something, or to do without it.
	Todo bool
}

// Translation is what a configuration amounts to.
type Translation struct {
	Settings []Setting
	Remarks  []Remark
}

// translator has what is left to be translated. Of a key that is there several times the last one counts, as in RabbitMQ.
type translator struct {
	left map[string]Entry
	out  Translation
}

// Translate translates the entries of all files, in the order in which RabbitMQ reads them.
func Translate(entries []Entry) Translation {
	t := &translator{left: map[string]Entry{}}
	for _, e := range entries {
		t.left[e.Key] = e
	}
	t.fromEnvironment()
	for _, topic := range []func(*translator){
		(*translator).listeners, (*translator).tls, (*translator).logins, (*translator).tokens, (*translator).users, (*translator).limits,
		(*translator).resources, (*translator).cluster, (*translator).logging, (*translator).definitions,
	} {
		topic(t)
	}
	t.rest()
	slices.SortStableFunc(t.out.Remarks, func(a, b Remark) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return t.out
}

// secret are keys whose values are not printed.
var secret = regexp.MustCompile(`pass$|\.password$|secret`)

// variable is what RabbitMQ replaces by an environment variable.
var variable = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// fromEnvironment takes out what depends on the environment of the RabbitMQ node, and what is encrypted for it.
func (t *translator) fromEnvironment() {
	for _, key := range slices.Sorted(maps.Keys(t.left)) {
		e := t.left[key]
		switch {
		case variable.MatchString(e.Value) && !strings.HasPrefix(key, "auth_ldap."):
			t.todo(e, "it is an environment variable of RabbitMQ's: translate the file with its value in it, or give Warren an environment variable (WARREN_…)")
		case strings.HasPrefix(e.Value, "encrypted:"):
			t.todo(e, "it is encrypted for RabbitMQ: decrypt it with rabbitmqctl decrypt")
		default:
			continue
		}
		delete(t.left, key)
	}
}

// take removes a key. The value is "" if it is not there.
func (t *translator) take(key string) Entry {
	e := t.left[key]
	delete(t.left, key)
	return e
}

// takeAll removes all keys that begin with prefix, in the order of the files' lines.
func (t *translator) takeAll(prefix string) []Entry {
	var all []Entry
	for key, e := range t.left {
		if strings.HasPrefix(key, prefix) {
			all = append(all, e)
			delete(t.left, key)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return all
}

// set adds a setting, unless all of from are missing.
func (t *translator) set(name, value string, from ...Entry) {
	from = slices.DeleteFunc(from, func(e Entry) bool { return e.Key == "" })
	if len(from) > 0 {
		t.out.Settings = append(t.out.Settings, Setting{name, value, from})
	}
}

// todo and note add remarks, unless e is missing.
func (t *translator) todo(e Entry, text string) { t.remark(e, text, true) }
func (t *translator) note(e Entry, text string) { t.remark(e, text, false) }

func (t *translator) remark(e Entry, text string, todo bool) {
	if e.Key != "" {
		if secret.MatchString(e.Key) {
			e.Value = "…"
		}
		t.out.Remarks = append(t.out.Remarks, Remark{e, text, todo})
	}
}

// isDefault is the remark about what Warren does anyway.
const isDefault = "nothing to set: this is the default"

// first takes several keys that stand for the same, and returns the first that is there.
func (t *translator) first(keys ...string) Entry {
	var first Entry
	for _, key := range keys {
		if e := t.take(key); first.Key == "" {
			first = e
		} else {
			t.note(e, first.Key+" counts")
		}
	}
	return first
}

// copied sets name to a key's value as it is.
func (t *translator) copied(name, key string) {
	e := t.take(key)
	t.set(name, e.Value, e)
}

// number reads a whole number. Of one that is none, which RabbitMQ would refuse, it adds a remark.
func (t *translator) number(e Entry) (n int, ok bool) {
	if e.Key == "" {
		return 0, false
	}
	n, err := strconv.Atoi(e.Value)
	if err != nil || n < 0 {
		t.todo(e, "it is no whole number")
		return 0, false
	}
	return n, true
}

// truth reads true or false in the words of RabbitMQ's flags. Of anything else it adds a remark.
func (t *translator) truth(e Entry) (is, ok bool) {
	switch e.Value {
	case "true", "on", "yes":
		return true, true
	case "false", "off", "no":
		return false, true
	case "":
		return false, false
	}
	t.todo(e, "it is neither true nor false")
	return false, false
}

// size reads a number of bytes in RabbitMQ's units: k and kiB are 1,024, kB is 1,000; upper and lower case count for nothing.
func size(s string) (bytes uint64, ok bool) {
	digits := strings.TrimRight(strings.ToLower(strings.TrimSpace(s)), "kmgtpib")
	unit := strings.ToLower(strings.TrimSpace(s))[len(digits):]
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
	if err != nil {
		return 0, false
	}
	base := uint64(1024)
	if len(unit) == 2 && unit[1] == 'b' {
		base = 1000
	}
	if unit != "" {
		power := strings.IndexByte("kmgtp", unit[0])
		if power < 0 || !slices.Contains([]string{"", "i", "b", "ib"}, unit[1:]) {
			return 0, false
		}
		for range power + 1 {
			if n > 1<<62/base {
				return 0, false
			}
			n *= base
		}
	}
	return n, true
}
