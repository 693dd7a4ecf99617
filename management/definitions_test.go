package management

import (
	"context"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/definitions"
)

// fakeDefinitions keeps what it is asked for; what definitions do is tested with them.
type fakeDefinitions struct {
	raw     string
	request definitions.Request
	report  definitions.Report
	err     error
}

func (f *fakeDefinitions) Export(_ context.Context, vhost string) (*definitions.Document, error) {
	return &definitions.Document{OriginalVhostName: vhost, Explanation: "<&>"}, nil
}

func (f *fakeDefinitions) Import(_ context.Context, raw []byte, req definitions.Request) (definitions.Report, []string, error) {
	f.raw, f.request = string(raw), req
	return f.report, nil, f.err
}

func TestDefinitions(t *testing.T) {
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = &fakeBroker{vhosts: map[string][]string{"/": {"manager"}, "v": {}}}
	fake := &fakeDefinitions{}
	f.apis["a"].cfg.Definitions = fake
	noAdmin := `{"error":"not_authorised","reason":"Not administrator user"}`
	f.expect(t, []request{
		{"", "GET", "definitions", "", 200, `{"explanation":"<&>","parameters":null,"policies":null,"queues":null,"exchanges":null,"bindings":null}`},
		{"", "GET", "definitions/%2F", "", 200, `…"original_vhost_name":"/"`},
		{"", "GET", "definitions/gone", "", 400, `{"error":"bad_request","reason":"vhost_not_found"}`},
		{"manager", "GET", "definitions", "", 401, noAdmin},
		{"monitor", "POST", "definitions", "{}", 401, noAdmin},
		{"monitor", "POST", "definitions/%2F", "{}", 401, noAdmin},
		{"", "POST", "definitions", strings.Repeat(" ", requestBytesMax+1), 204, ``},
		{"", "POST", "definitions/gone", "{}", 400, `{"error":"bad_request","reason":"vhost_not_found"}`},
		{"", "POST", "definitions/v?skip_if_unchanged=true", "{}", 400, `…skip_if_unchanged is for the definitions of all virtual hosts`},
		{"", "POST", "definitions?dry_run=yes", "{}", 400, `…dry_run is <<\"yes\">>, want true or false`},
		{"", "PUT", "definitions", "{}", 405, `…Method Not Allowed`},
		{"", "POST", "definitions?skip_unsupported=true&skip_if_unchanged=true&report=true", `{"a":1}`, 200, `{"dry_run":false,"counts":null,"changes":null,"skipped":null}`},
	})
	if want := (definitions.Request{User: "admin", SkipUnsupported: true, SkipUnchanged: true}); fake.raw != `{"a":1}` || fake.request != want {
		t.Errorf("asked for %q, %+v", fake.raw, fake.request)
	}
	item := definitions.Item{Kind: definitions.KindQueue, VHost: "/", Name: "q"}
	fake.report.Skipped = []definitions.Note{{Item: item, Reason: "why"}}
	f.expect(t, []request{{"", "POST", "definitions", "{}", 200, `…"skipped":[{"kind":"queue","vhost":"/","name":"q","reason":"why"}]`}})

	fake.report, fake.err = definitions.Report{}, &definitions.Invalid{Problems: []definitions.Problem{{Item: item, Reason: "wrong"}}}
	f.expect(t, []request{{"", "POST", "definitions/v", "{}", 400, `{"error":"bad_request","reason":"queue 'q' in vhost '/': wrong. Nothing was imported","problems":[{"kind":"queue","vhost":"/","name":"q","reason":"wrong"}]}`}})
	if fake.request.VHost != "v" {
		t.Errorf("asked for %+v", fake.request)
	}
	fake.report = definitions.Report{Failed: []definitions.Note{{Item: item, Reason: "no leader"}}, NotTried: 3}
	fake.err = broker.Errorf(broker.Unavailable, "no leader")
	f.expect(t, []request{{"", "POST", "definitions", "{}", 503, `…{"error":"service_unavailable","reason":"queue 'q' in vhost '/': no leader. Imported in part: 0 created, 0 updated, 0 unchanged, 0 skipped, 0 failed, 3 not tried","report":`}})
	fake.err = broker.Errorf(broker.PreconditionFailed, "limit reached")
	f.expect(t, []request{{"", "POST", "definitions", "{}", 400, `…"report":{"dry_run":false`}})
}

// A form's file is imported, as from RabbitMQ's own page, and a browser keeps an export as a file.
func TestDefinitionsOfBrowsers(t *testing.T) {
	f := newFakeCluster("a")
	fake := &fakeDefinitions{}
	f.apis["a"].cfg.Definitions = fake
	send := func(method, path, typ, body string) *httptest.ResponseRecorder {
		req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		req.RemoteAddr = "127.0.0.1:1"
		req.SetBasicAuth("admin", "secret")
		req.Header.Set("Content-Type", typ)
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, req)
		return w
	}
	var b strings.Builder
	form := multipart.NewWriter(&b)
	for name, content := range map[string]string{"file": `{"queues":[]}`, "redirect": "elsewhere"} {
		part, err := form.CreateFormFile(name, "definitions.json")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	if w := send("POST", "/api/definitions", form.FormDataContentType(), b.String()); w.Code != http.StatusNoContent || fake.raw != `{"queues":[]}` {
		t.Errorf("%d %s, got %q", w.Code, w.Body, fake.raw)
	}
	for _, body := range []string{"", "--x--", "--x\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n\r\n--x--"} {
		if w := send("POST", "/api/definitions", "multipart/form-data; boundary=x", body); w.Code != http.StatusBadRequest {
			t.Errorf("form %q: %d %s", body, w.Code, w.Body)
		}
	}
	w := send("GET", "/api/definitions?download=a%22%0ab.json", "", "")
	if got := w.Header().Get("Content-Disposition"); w.Code != http.StatusOK || got != `attachment; filename="a__b.json"` {
		t.Errorf("%d, %q", w.Code, got)
	}
}
