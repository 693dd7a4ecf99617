package definitions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
)

// Bounds of a document.
const (
	// BytesMax bounds the text of a document: some hundred thousand queues.
	BytesMax = 64 << 20
	// objectsMax bounds how many objects a document has in all.
	objectsMax = 500_000
)

// head are the keys that say where a document comes from, or what a single virtual host is like, which is
// not imported. They are texts, or anything.
var head = []string{
	"rabbit_version", "rabbitmq_version", "product_name", "product_version", "rabbitmq_definition_format", "original_cluster_name",
	"original_vhost_name", "explanation", "metadata", "description", "limits", "default_queue_type",
}

// Parse reads a document. The error is [*Invalid] with everything that is wrong with its form; what the objects say is
// checked by [Make]. Nothing in a file is nothing to change.
func Parse(raw []byte) (*Document, error) {
	if len(raw) > BytesMax {
		return nil, invalid("definitions have %d bytes, the maximum is %d", len(raw), BytesMax)
	}
	d := &Document{}
	raw = bytes.TrimSpace(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")))
	if len(raw) == 0 {
		return d, nil
	}
	if !utf8.Valid(raw) {
		return nil, invalid("definitions are not UTF-8") // names would be others
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, invalid("definitions are not a JSON object: %v", err)
	}
	if keys == nil {
		return nil, invalid("definitions are not a JSON object: null")
	}
	if key, ok := twice(raw); ok {
		return nil, invalid("definitions have %q twice", key)
	}
	p := parser{keys: keys}
	d.RabbitVersion, d.RabbitMQVersion = p.text("rabbit_version"), p.text("rabbitmq_version")
	for _, key := range head {
		delete(keys, key)
	}
	d.Users = read(&p, KindUser, "users", []string{"name"}, nil, func(u *User) string { return u.Name })
	d.Vhosts = read(&p, KindVhost, "vhosts", []string{"name"}, nil, func(h *Vhost) string { return h.Name })
	d.Permissions = read(&p, KindPermission, "permissions", []string{"user", "vhost", "configure", "write", "read"}, nil, func(p *Permission) string { return p.User })
	d.TopicPermissions = read(&p, KindTopicPermission, "topic_permissions", []string{"user", "vhost", "exchange", "write", "read"}, nil, func(p *TopicPermission) string { return p.User })
	d.Parameters = read(&p, KindParameter, "parameters", []string{"component", "name", "value"}, nil, func(p *Parameter) string { return p.Name })
	d.GlobalParameters = read(&p, KindGlobalParameter, "global_parameters", []string{"name"}, nil, func(p *Parameter) string { return p.Name })
	d.Policies = read(&p, KindPolicy, "policies", []string{"name", "pattern", "definition"}, nil, func(p *Policy) string { return p.Name })
	d.Queues = read(&p, KindQueue, "queues", []string{"name"}, func(q *Queue) { q.Durable = true }, func(q *Queue) string { return q.Name })
	d.Exchanges = read(&p, KindExchange, "exchanges", []string{"name", "type"}, func(x *Exchange) { x.Durable = true }, func(x *Exchange) string { return x.Name })
	d.Bindings = read(&p, KindBinding, "bindings", []string{"source", "destination", "destination_type", "routing_key"}, nil, func(b *Binding) string { return b.Source })
	for key := range keys {
		d.Unknown = append(d.Unknown, key)
	}
	slices.Sort(d.Unknown)
	if p.objects > objectsMax {
		return nil, invalid("definitions have %d objects, the maximum is %d", p.objects, objectsMax)
	}
	if len(p.problems) > 0 {
		return nil, &Invalid{p.problems}
	}
	return d, nil
}

// twice finds a key that an object has a second time, of which a decoder would take the last. raw is a JSON object, or null.
func twice(raw []byte) (key string, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return "", false
		}
		key, _ = t.(string)
		if seen[key] {
			return key, true
		}
		seen[key] = true
		var skipped json.RawMessage
		if dec.Decode(&skipped) != nil {
			return "", false
		}
	}
	return "", false
}

// parser reads the lists of a document; what it has read it takes out of keys.
type parser struct {
	keys     map[string]json.RawMessage
	objects  int
	problems []Problem
}

// text returns the text of a key, "" if it is none.
func (p *parser) text(key string) (s string) {
	_ = json.Unmarshal(p.keys[key], &s) // nothing depends on it
	return s
}

// read reads a list of objects, each of which has the needed keys and begins as preset. No list is nil.
func read[T any](p *parser, kind Kind, key string, needed []string, preset func(*T), name func(*T) string) []T {
	raw, ok := p.keys[key]
	delete(p.keys, key)
	if !ok || string(raw) == "null" {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		p.problem(Item{Kind: kind}, "%s is not a list", key)
		return nil
	}
	if p.objects += len(list); p.objects > objectsMax {
		return nil
	}
	objects := make([]T, len(list))
	for i := range list {
		if preset != nil {
			preset(&objects[i])
		}
		where := fmt.Sprintf("number %d of %s", i+1, key)
		var has map[string]json.RawMessage
		if err := json.Unmarshal(list[i], &has); err != nil || has == nil {
			p.problem(Item{Kind: kind}, "%s is not an object", where)
			continue
		}
		if err := json.Unmarshal(list[i], &objects[i]); err != nil {
			p.problem(Item{Kind: kind, Name: name(&objects[i])}, "%s: %s", where, reasonOf(err))
			continue
		}
		for _, k := range needed {
			if v, ok := has[k]; !ok || string(v) == "null" && k != "value" {
				p.problem(Item{Kind: kind, Name: name(&objects[i])}, "%s has no %s", where, k)
			}
		}
	}
	return objects
}

func (p *parser) problem(item Item, format string, args ...any) {
	if len(p.problems) < problemsMax {
		p.problems = append(p.problems, Problem{Item: item, Reason: fmt.Sprintf(format, args...)})
	}
}

// reasonOf is an error of decoding in words that name the key.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("%s is a %s", e.Field, e.Value)
	}
	return err.Error()
}

// UnmarshalJSON reads an object, or an empty list.
func (a *arguments) UnmarshalJSON(raw []byte) error {
	if isNone(raw) {
		a.Table = nil
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil {
		return errors.New("arguments are not an object")
	}
	t, err := amqp.TableFromJSON(object, amqp.TableDepthMax-1)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	a.Table = t
	return nil
}

// MarshalJSON writes an object.
func (a arguments) MarshalJSON() ([]byte, error) { return marshal(a.JSON()) }

// isNone tells whether a value is nothing, an empty list, or an empty text.
func isNone(raw []byte) bool {
	s := strings.Join(strings.Fields(string(raw)), "")
	return s == "null" || s == "[]" || s == `""`
}

// ofPairs makes an object of a list of pairs, which rabbitmqctl of RabbitMQ 3 writes where Erlang has a list of properties. Anything else stays as it is.
func ofPairs(raw []byte) []byte {
	var list [][]json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return raw
	}
	object := make(map[string]json.RawMessage, len(list))
	for _, pair := range list {
		var key string
		if len(pair) != 2 || json.Unmarshal(pair[0], &key) != nil {
			return raw
		}
		object[key] = pair[1]
	}
	out, err := marshal(object)
	if err != nil {
		return raw
	}
	return out
}

// UnmarshalJSON reads a list, or a text with commas.
func (t *tags) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*t = append(tags{}, auth.ParseTags(text)...)
		return nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return errors.New("tags are neither a list of texts nor a text")
	}
	*t = append(tags{}, list...)
	return nil
}

// UnmarshalJSON reads an object, a list of pairs, or an empty list.
func (l *limits) UnmarshalJSON(raw []byte) error {
	if isNone(raw) {
		*l = nil
		return nil
	}
	var m map[string]int64
	if err := json.Unmarshal(ofPairs(raw), &m); err != nil {
		return errors.New("limits are not an object of whole numbers")
	}
	*l = m
	return nil
}

// MarshalJSON writes an object.
func (l limits) MarshalJSON() ([]byte, error) {
	if l == nil {
		l = limits{}
	}
	return marshal(map[string]int64(l))
}

// marshal is [json.Marshal] without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Write writes the document as JSON.
func (d *Document) Write(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(d)
}
