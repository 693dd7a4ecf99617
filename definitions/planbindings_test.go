package definitions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

// TestBindingArguments: what a client declared with narrower numbers is not bound a second time.
func TestBindingArguments(t *testing.T) {
	m := newModel(t)
	m.load(t, []byte(`{"queues":[{"name":"q","vhost":"/"}]}`), Options{})
	_, err := m.Define(t.Context(), &catalog.Bind{Binding: catalog.Binding{
		Vhost: "/", Source: "amq.headers", Destination: "q", Arguments: amqp.Table{{Name: "x-match", Value: "any"}, {Name: "n", Value: int32(3)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r := m.load(t, []byte(m.text(t, "")), Options{}); len(r.Changes) > 0 {
		t.Errorf("changes %+v", r.Changes)
	}
}

// TestWithoutDefaultVhost: bindings of what every virtual host has are made in a new one although the default one was deleted.
func TestWithoutDefaultVhost(t *testing.T) {
	m := newModel(t)
	if _, err := m.Define(t.Context(), &catalog.DeleteVhost{Name: "/"}); err != nil {
		t.Fatal(err)
	}
	r := m.load(t, []byte(`{"vhosts":[{"name":"v"}],"queues":[{"name":"q","vhost":"v"}],"bindings":[
		{"vhost":"v","source":"amq.topic","destination":"q","destination_type":"queue","routing_key":"#"},
		{"vhost":"v","source":"amq.topic","destination":"amq.fanout","destination_type":"exchange","routing_key":"a"}]}`), Options{})
	if len(r.Skipped) > 0 || r.Counts[KindBinding].Created != 2 {
		t.Errorf("%s, left out %+v", r.Summary(), r.Skipped)
	}
}

// TestManyBindings: a plan for a queue with thousands of bindings by arguments takes no time for each pair of them.
func TestManyBindings(t *testing.T) {
	document := func(from, n int) []byte {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`{"vhost":"/","source":"amq.headers","destination":"q","destination_type":"queue","routing_key":"","arguments":{"n":%d}}`, from+i)
		}
		return []byte(`{"queues":[{"name":"q","vhost":"/"}],"bindings":[` + strings.Join(list, ",") + `]}`)
	}
	const n = 5000
	m := newModel(t)
	m.load(t, document(0, n), Options{})
	d, err := Parse(document(n, n))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p, err := Make(d, m.view(), Options{})
	if took := time.Since(began); err != nil || took > 10*time.Second {
		t.Errorf("%v, %v", took, err)
	} else if r := p.Preview(); r.Counts[KindBinding].Created != n {
		t.Errorf("%s", r.Summary())
	}
}
