package shovel

import (
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const plain = `{"src-uri":"amqp://","src-queue":"q","dest-uri":["amqp://u:p%2F@h:1234/v","amqps://h"],"dest-queue":"d"}`

func TestParse(t *testing.T) {
	d, err := Parse([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	if d.AckMode != OnConfirm || d.ReconnectDelay != 5*time.Second || d.Source.Prefetch != 1000 || d.Source.DeleteAfter != Never || !d.Source.URIs[0].Local ||
		d.Source.Queue != "q" || *d.Destination.Exchange != "" || *d.Destination.Key != "d" || len(d.Destination.URIs) != 2 {
		t.Errorf("%+v", d)
	}
	d, err = Parse([]byte(`{"src-protocol":"amqp091","dest-protocol":"amqp091","src-uri":"amqp:///a%2Fb","src-exchange":"x","src-exchange-key":"k.#","src-queue-args":{"x-max-length":5},
		"src-consumer-args":[],"prefetch-count":7,"dest-uri":"amqp://","dest-exchange":"","dest-exchange-key":"key","add-forward-headers":true,"add-timestamp-header":false,
		"publish-properties":{"delivery_mode":2,"headers":{"a":1.5,"b":[true,null,"s",{"c":9007199254740993}]},"timestamp":60},"delete-after":3,"reconnect-delay":0}`))
	if err != nil {
		t.Fatal(err)
	}
	headers := amqp.Table{"a": 1.5, "b": []any{true, nil, "s", amqp.Table{"c": int64(9007199254740993)}}}
	switch to := &d.Destination; {
	case d.Source.Exchange != "x" || d.Source.Key != "k.#" || d.Source.QueueArgs["x-max-length"] != int64(5) || d.Source.Prefetch != 7 || d.Source.DeleteAfter != 3:
		t.Errorf("%+v", d.Source)
	case *to.Exchange != "" || *to.Key != "key" || !to.ForwardHeaders || to.TimeHeader || *to.Properties.DeliveryMode != 2 || to.Properties.Timestamp.Unix() != 60:
		t.Errorf("%+v", to)
	case !reflect.DeepEqual(to.Properties.Headers, headers):
		t.Errorf("%+v", to.Properties.Headers)
	case d.ReconnectDelay != 0 || d.Source.URIs[0].VHost != "a/b":
		t.Errorf("%+v", d)
	}
	for value, want := range map[string]int{"0": prefetchMax, "65535": prefetchMax, "1": 1} {
		d, err := Parse([]byte(strings.Replace(plain, "{", `{"src-prefetch-count":`+value+",", 1)))
		if err != nil || d.Source.Prefetch != want {
			t.Errorf("prefetch %s: %+v, %v", value, d, err)
		}
	}
	for value, want := range map[string]int{`"queue-length"`: QueueLength, `"never"`: Never, `0`: 0, `7`: 7} {
		d, err := Parse([]byte(strings.Replace(plain, "{", `{"src-delete-after":`+value+",", 1)))
		if err != nil || d.Source.DeleteAfter != want {
			t.Errorf("delete after %s: %+v, %v", value, d, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	with := func(more string) string { return strings.Replace(plain, "{", "{"+more+",", 1) }
	for value, want := range map[string]string{
		``: "JSON object", `null`: "JSON object", `[]`: "JSON object", `{} {}`: "JSON object", `{`: "JSON object",
		`{"src-uri":"amqp://"}`:                             "Must specify",
		`{"src-uri":[],"src-queue":"q"}`:                    "src-uri should be one to",
		`{"src-uri":7,"src-queue":"q"}`:                     "src-uri should be a string",
		`{"src-uri":"x://","src-queue":"q"}`:                "scheme",
		`{"src-uri":"amqps://","src-queue":"q"}`:            "without a host",
		with(`"src-delete-after":"often"`):                  "src-delete-after should be a number",
		with(`"src-delete-after":-1`):                       "src-delete-after should be an integer",
		with(`"src-delete-after":1.5`):                      "src-delete-after should be an integer",
		with(`"src-predeclared":"yes"`):                     "src-predeclared should be boolean",
		with(`"src-queue-args":7`):                          "src-queue-args should be an object",
		with(`"src-queue-args":[1]`):                        "src-queue-args should be an object",
		with(`"reconnect-delay":"5"`):                       "reconnect-delay should be a number",
		with(`"reconnect-delay":1e9`):                       "reconnect-delay should be an integer",
		with(`"dest-exchange":"x"`):                         "Cannot specify 'dest-exchange' and 'dest-queue'",
		with(`"prefetch-count":1,"src-prefetch-count":2`):   "Cannot specify 'src-prefetch-count' and 'prefetch-count'",
		with(`"dest-publish-properties":{"priority":256}`):  "priority",
		with(`"dest-publish-properties":{"type":7}`):        "type should be a string",
		with(`"dest-publish-properties":{"headers":7}`):     "headers should be an object",
		with(`"dest-publish-properties":{"cluster_id":""}`): "there is no property 'cluster_id'",
		with(`"src-queue-args":{"a":` + strings.Repeat(`[`, 40) + strings.Repeat(`]`, 40) + `}`): "nested too deep",
		with(`"src-queue-args":{"a":1e999}`):                                                     "no number",
		strings.Replace(plain, `"q"`, `"`+strings.Repeat("q", 256)+`"`, 1):                       "src-queue has 256 bytes",
		strings.Replace(plain, `"q"`, `""`, 1):                                                   "name of the source is empty",
		strings.Replace(plain, `"d"`, `""`, 1):                                                   "name of the destination is empty",
	} {
		if _, err := Parse([]byte(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %v, want %q", value, err, want)
		}
	}
}

func TestParseURI(t *testing.T) {
	for s, want := range map[string]URI{
		"amqp://":                        {Local: true, Heartbeat: heartbeat},
		"amqp:///v%2Fw":                  {Local: true, VHost: "v/w", Heartbeat: heartbeat},
		"amqp://u@/v":                    {Local: true, User: "u", VHost: "v", Heartbeat: heartbeat},
		"amqp://u:p@h/?heartbeat=7":      {User: "u", Heartbeat: 7 * time.Second},
		"amqps://h:1?verify=verify_none": {Heartbeat: heartbeat, Unverified: true},
	} {
		got, err := ParseURI(s)
		got.raw = ""
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "h", "http://h", "amqp://h:0", "amqp://h:65536", "amqp://h:x", "amqp://h?what=1", "amqp://h?heartbeat=-1", "amqp://h?verify=no", "amqp://h?connection_timeout=x",
		"amqp://secret:%zz@h", "amqp://" + strings.Repeat("h", uriMax),
	} {
		if u, err := ParseURI(s); err == nil {
			t.Errorf("%s: %+v", s, u)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", s, err)
		}
	}
	for s, want := range map[string]string{
		"amqp://user:secret@h:5673/v?heartbeat=5": "amqp://h:5673/v", "amqp://": "amqp://", "amqp://user@/v%2Fw": "amqp:///v%2Fw", "amqp:///": "amqp:///",
	} {
		if u, err := ParseURI(s); err != nil || u.String() != want {
			t.Errorf("%s is shown as %s, %v", s, u, err)
		}
	}
}

// FuzzParse holds that whatever is read does not panic, has what a worker needs, and stays within the bounds.
func FuzzParse(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(`{"src-uri":"amqp://u:p@h/v?heartbeat=5","src-exchange":"x","dest-uri":[],"dest-publish-properties":{"headers":{"a":[{"b":1}]}}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		d, err := Parse(value)
		if err != nil {
			return
		}
		if len(d.Source.URIs) == 0 || len(d.Destination.URIs) == 0 || d.Source.Prefetch < 1 || d.Source.Prefetch > prefetchMax ||
			(d.Source.Queue == "") == (d.Source.Exchange == "") || d.Source.DeleteAfter < Never || d.ReconnectDelay < 0 || d.ReconnectDelay > delayMax {
			t.Errorf("%s: %+v", value, d)
		}
		for _, u := range append(d.Source.URIs, d.Destination.URIs...) {
			if strings.Contains(u.String(), "@") && u.User != "" {
				t.Errorf("%s shows a login", u)
			}
		}
	})
}
