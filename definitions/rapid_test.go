package definitions

import (
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// some draws a cluster's definitions as a document.
func some(t *rapid.T) []byte {
	word := func(what string, words ...string) string { return rapid.SampledFrom(words).Draw(t, what) }
	draw := func(what string, most int, f func(i int) map[string]any) []any {
		list := []any{}
		for i := range rapid.IntRange(0, most).Draw(t, what) {
			list = append(list, f(i))
		}
		return list
	}
	args := func(known ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(known); i += 2 {
			if rapid.Bool().Draw(t, "argument") {
				m[known[i].(string)] = known[i+1]
			}
		}
		return m
	}
	vhosts := []string{"/", "v/w", "ü%"}
	doc := map[string]any{"vhosts": []any{
		map[string]any{"name": "v/w", "description": word("description", "", "<d>"), "tags": []string{"t"}, "default_queue_type": word("default", "classic", "quorum")},
		map[string]any{"name": "ü%", "limits": args("max-connections", 3, "max-queues", 100)},
	}}
	doc["users"] = draw("users", 3, func(i int) map[string]any {
		return map[string]any{"name": fmt.Sprint("u", i), "password_hash": word("hash", "", "c2FsdEmMWqvrOVzhEyF49Rc2SAE="), "tags": word("tags", "", "a,b"), "limits": args("max-channels", 5)}
	})
	users := len(doc["users"].([]any))
	var permissions, topics []any
	for u := range users {
		for _, h := range vhosts {
			if rapid.Bool().Draw(t, "permission") {
				permissions = append(permissions, map[string]any{"user": fmt.Sprint("u", u), "vhost": h, "configure": word("pattern", "", ".*", "^a"), "write": ".*", "read": ""})
				topics = append(topics, map[string]any{"user": fmt.Sprint("u", u), "vhost": h, "exchange": "amq.topic", "write": word("topic", "", "^{username}"), "read": ".*"})
			}
		}
	}
	doc["permissions"], doc["topic_permissions"] = permissions, topics
	var parameters, policies, queues, exchanges, bindings []any
	for _, h := range vhosts {
		parameters = append(parameters, draw("operator policies", 2, func(i int) map[string]any {
			return map[string]any{"component": "operator_policy", "vhost": h, "name": fmt.Sprint("o", i), "value": map[string]any{
				"pattern": "^q", "definition": map[string]any{"max-length": i + 1}, "priority": i, "apply-to": word("apply", "queues", "all"),
			}}
		})...)
		policies = append(policies, draw("policies", 2, func(i int) map[string]any {
			return map[string]any{"vhost": h, "name": fmt.Sprint("p", i), "pattern": word("pattern", "", "^q"), "definition": map[string]any{"message-ttl": i, "delayed-retry-multiplier": 1.5}, "priority": -i}
		})...)
		q := draw("queues", 3, func(i int) map[string]any {
			m := map[string]any{
				"vhost": h, "name": fmt.Sprint("q<", i), "durable": true, "auto_delete": rapid.Bool().Draw(t, "auto-delete"),
				"arguments": args("x-message-ttl", 7, "x-dead-letter-exchange", "x0", "x-custom", []any{1, 2.5, "t", true, nil, map[string]any{"in": -1}}),
			}
			if typ := word("type", "", "classic", "quorum"); typ != "" && !m["auto_delete"].(bool) {
				m["type"] = typ
			}
			return m
		})
		x := draw("exchanges", 3, func(i int) map[string]any {
			m := map[string]any{
				"vhost": h, "name": fmt.Sprint("x", i), "type": word("type", "direct", "topic", "headers", "x-consistent-hash", "x-delayed-message"),
				"durable": rapid.Bool().Draw(t, "durable"), "auto_delete": false, "internal": rapid.Bool().Draw(t, "internal"), "arguments": args("alternate-exchange", "amq.fanout"),
			}
			if m["type"] == "x-delayed-message" {
				m["arguments"] = map[string]any{"x-delayed-type": "topic"}
			}
			return m
		})
		queues, exchanges = append(queues, q...), append(exchanges, x...)
		if len(q) == 0 || len(x) == 0 {
			continue
		}
		bindings = append(bindings, draw("bindings", 3, func(i int) map[string]any {
			m := map[string]any{
				"vhost": h, "source": fmt.Sprint("x", i%len(x)), "destination": fmt.Sprint("q<", i%len(q)), "destination_type": "queue",
				"routing_key": fmt.Sprint(i + 1), "arguments": args("x-match", "any", "n", i, "f", 0.5),
			}
			if rapid.Bool().Draw(t, "to exchange") {
				m["destination"], m["destination_type"] = "amq.fanout", "exchange"
			}
			return m
		})...)
	}
	doc["parameters"], doc["policies"], doc["queues"], doc["exchanges"], doc["bindings"] = parameters, policies, queues, exchanges, bindings
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRoundTrip: what a cluster exports makes another one that exports the same, and changes nothing in the first.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := newModel(t), newModel(t)
		imported := func(m *model, text []byte) Report {
			d, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Make(d, m.view(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			preview := p.Preview()
			r, err := p.Run(t.Context(), m)
			if err != nil {
				t.Fatal(err, r.Failed)
			}
			if len(preview.Changes) != len(r.Changes) || preview.Summary() != r.Summary() {
				t.Fatalf("the preview says %s, it did %s", preview.Summary(), r.Summary())
			}
			return r
		}
		imported(first, some(t))
		text := first.text(t, "")
		if r := imported(second, []byte(text)); len(r.Skipped) > 0 {
			t.Fatalf("left out %+v", r.Skipped)
		}
		if got := second.text(t, ""); got != text {
			t.Fatalf("exported again:\n%s\nwant\n%s", got, text)
		}
		for _, m := range []*model{first, second} {
			if r := imported(m, []byte(text)); len(r.Changes) > 0 || len(r.Skipped) > 0 {
				t.Fatalf("its own export changes %+v, leaves out %+v", r.Changes, r.Skipped)
			}
		}
	})
}

// FuzzImport: whatever a document says, it is refused as a whole, or imported and nothing is left to change.
func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"users":[{"name":"u","tags":"a","limits":[]}],"vhosts":[{"name":"v"}],"parameters":[{"component":"vhost-limits","vhost":"v","name":"limits","value":{}}]}`))
	f.Add([]byte(`{"queues":[{"name":"q","vhost":"/","type":"quorum","arguments":{"a":[null,1e3]}}],"bindings":[{"source":"amq.topic","vhost":"/","destination":"q","destination_type":"queue","routing_key":"#"}]}`))
	f.Add([]byte(`{"policies":[{"name":"p","vhost":"/","pattern":"a","definition":{"ha-mode":"all","max-length":1}}],"permissions":[{"user":"admin","vhost":"/","configure":"","write":"","read":""}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		m := newModel(t)
		p, err := Make(d, m.view(), Options{SkipUnsupported: len(text)%2 == 0, DefaultUser: "admin"})
		if err != nil {
			return
		}
		if r, err := p.Run(t.Context(), m); err != nil {
			t.Fatalf("%v: %+v", err, r.Failed)
		}
		p, err = Make(d, m.view(), Options{SkipUnsupported: len(text)%2 == 0, DefaultUser: "admin"})
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Preview(); len(r.Changes) > 0 {
			t.Fatalf("still to do: %+v", r.Changes)
		}
	})
}
