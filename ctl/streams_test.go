package ctl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestConsumeEventStream prints the events of a stream line by line, until it is ended, broken off or refused.
func TestConsumeEventStream(t *testing.T) {
	stream := "event: hello\ndata: {\"node\":\"n1\"}\n\n: a comment\n\nevent: change\ndata: {\"kind\":\"queue\",\"action\":\"paused\",\"vhost\":\"/\",\"name\":\"q\"}\n\n"
	for _, tc := range []struct {
		status int
		body   string
		code   int
		failed string
	}{
		{200, stream + "event: end\ndata: {\"reason\":\"the node stops\"}\n\n", ExitUnavailable, "has ended the stream"},
		{200, stream, ExitUnavailable, "was broken off"},
		{200, stream + "event: leader\ndata: {\n\n", ExitSoftware, "an event that is no JSON"},
		{404, `{}`, ExitSoftware, "does not know of events"},
		{503, `{"error":"too_many_streams","reason":"this node has 64 streams of events"}`, ExitUnavailable, "64 streams"},
	} {
		var at string
		code, _, failed := run(t, func(w http.ResponseWriter, r *http.Request) {
			at = r.Method + " " + r.URL.Path
			w.WriteHeader(tc.status)
			_, _ = w.Write([]byte(tc.body))
		}, "consume_event_stream")
		if code != tc.code || !strings.Contains(failed, tc.failed) || at != "GET /api/warren/events" {
			t.Errorf("%s: %d %q", at, code, failed)
		}
	}
}

// TestLogTailStream prints each line once, says what it missed, and ends with its time.
func TestLogTailStream(t *testing.T) {
	answers := []string{
		`{"lines":["old"],"last":7}`, `{"lines":["a b","c"],"last":9}`, `{"lines":[],"last":9}`, `{"lines":["d"],"last":15,"missed":5}`,
	}
	var asked []string
	code, _, failed := run(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		if len(asked) <= len(answers) {
			_, _ = w.Write([]byte(answers[len(asked)-1]))
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable) // the node ends
		_, _ = w.Write([]byte(`{"error":"unavailable","reason":"it stops"}`))
	}, "log_tail_stream", "-q")
	if want := "[lines=1 lines=1000&after=7 lines=1000&after=9 lines=1000&after=9 lines=1000&after=15]"; fmt.Sprint(asked) != want {
		t.Errorf("asked %v", asked)
	}
	if code != ExitUnavailable || !strings.Contains(failed, "it stops") {
		t.Errorf("%d %q", code, failed)
	}
	code, out, failed := run(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "lines=1" {
			_, _ = w.Write([]byte(answers[0]))
			return
		}
		_, _ = w.Write([]byte(`{"lines":["x"],"last":8,"missed":2}`))
	}, "log_tail_stream", "-d", "1")
	if code != ExitOK || !strings.HasPrefix(out, "... 2 lines were not kept ...\nx\n") {
		t.Errorf("%d %q %q", code, out, failed)
	}
	if code, _, failed := run(t, says(200, `{"lines":[]}`), "log_tail_stream"); code != ExitSoftware || !strings.Contains(failed, "does not number") {
		t.Errorf("%d %q", code, failed)
	}
	if code, _, _ := run(t, says(200, `{}`), "log_tail_stream", "-d", "-1"); code != ExitUsage {
		t.Errorf("exit code %d", code)
	}
}
