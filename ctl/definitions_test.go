package ctl

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefinitionVerbs(t *testing.T) {
	const left = `"skipped":[{"kind":"parameter","vhost":"/","name":"shovel/s","reason":"why"},{"kind":"user","name":"u","reason":"stays"}]`
	const report = `{"dry_run":true,"counts":{"queue":{"created":2,"unchanged":1},"user":{"updated":1,"skipped":1}},"changes":[{"kind":"queue","vhost":"/","name":"q","action":"create"},` +
		`{"kind":"user","name":"w","action":"update","differences":[{"field":"tags","from":[],"to":["a"]}]}],` + left + `}`
	const told = "left out: parameter 'shovel/s' in vhost '/': why\nleft out: user 'u': stays\n"
	dir := t.TempDir()
	file, target := filepath.Join(dir, "in.json"), filepath.Join(dir, "out.json")
	if err := os.WriteFile(file, []byte(`{ "queues":["<"] }`), 0o600); err != nil {
		t.Fatal(err)
	}
	checkVerbs(t, []verbCase{
		{args: []string{"export_definitions"}, method: "GET", path: "/api/definitions", status: 200, answer: `{"a":1}`, out: `{"a":1}` + "\n"},
		{args: []string{"export_definitions", "-", "--format", "json", "-p", "/"}, method: "GET", path: "/api/definitions/%2F", status: 200, answer: `{}`, out: "{}\n"},
		{
			args: []string{"export_definitions", target}, method: "GET", path: "/api/definitions", status: 200, answer: `{"a":1}`,
			out: "Exporting definitions in JSON to a file at \"" + target + "\" ...\n",
		},
		{
			args: []string{"export_definitions", os.DevNull, "-q"}, method: "GET", path: "/api/definitions", status: 200,
			answer: `{"explanation":"c. Altered, replaced by U+FFFD: queue 'q'"}`, out: "c. Altered, replaced by U+FFFD: queue 'q'\n",
		},
		{
			args: []string{"export_definitions", os.DevNull}, method: "GET", path: "/api/definitions", status: 200, answer: `{"a":1}`,
			out: "Exporting definitions in JSON to a file at \"" + os.DevNull + "\" ...\n",
		},
		{args: []string{"export_definitions", filepath.Join(dir, "no", "such")}, method: "GET", path: "/api/definitions", status: 200, answer: `{}`, code: ExitUsage, failed: "no such file"},
		{args: []string{"export_definitions"}, method: "GET", path: "/api/definitions", status: 401, answer: `{"reason":"Not administrator user"}`, code: ExitNoPerm, failed: "Not administrator user"},
		{args: []string{"export_definitions", "--format", "erlang"}, code: ExitUsage, failed: "format 'erlang' is not supported"},
		{
			args: []string{"import_definitions", file, "--dry-run"}, method: "POST", path: "/api/definitions", body: `{ "queues":["<"] }`, status: 200, answer: report,
			out: "Importing definitions in JSON from a file at \"" + file + "\" ...\ncreate queue 'q' in vhost '/'\nupdate user 'w'\n    tags: [] -> [a]\n" + told +
				"nothing was changed: 2 to create, 1 to update, 1 as they are, 2 left out\n",
		},
		{
			args: []string{"import_definitions", "-q", "-p", "v"}, stdin: "{}", method: "POST", path: "/api/definitions/v", body: "{}", status: 200, answer: report,
			out: told + "2 created, 1 updated, 1 as they were, 2 left out\n",
		},
		{args: []string{"import_definitions", "-", "--formatter", "json"}, stdin: "{}", method: "POST", path: "/api/definitions", body: "{}", status: 200, answer: report, out: report + "\n"},
		{
			args: []string{"import_definitions", "-q", "--skip-if-unchanged"}, stdin: "{}", method: "POST", path: "/api/definitions", body: "{}", status: 200, answer: `{"unchanged":true}`,
			out: "the same definitions were loaded before: nothing was changed\n",
		},
		{args: []string{"import_definitions"}, stdin: "{", method: "POST", path: "/api/definitions", body: "{", status: 400, answer: `{"reason":"not this"}`, code: ExitSoftware, failed: "not this"},
		{args: []string{"import_definitions"}, stdin: "{}", method: "POST", path: "/api/definitions", body: "{}", status: 503, answer: `{"reason":"in part"}`, code: ExitUnavailable, failed: "in part"},
		{
			args: []string{"import_definitions"}, stdin: "{}", method: "POST", path: "/api/definitions", body: "{}", status: 400, code: ExitSoftware,
			answer: `{"reason":"a stream. Nothing was imported (skip_unsupported leaves out what Warren does not have)"}`, failed: "Nothing was imported (--skip-unsupported leaves out",
		},
		{args: []string{"import_definitions", filepath.Join(dir, "none")}, code: ExitUsage, failed: "no such file"},
	})
	if raw, err := os.ReadFile(target); err != nil || string(raw) != `{"a":1}`+"\n" {
		t.Errorf("written: %q, %v", raw, err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the hashes: %v, %v", info, err)
	}
	var query string
	run(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		w.WriteHeader(http.StatusNoContent)
	}, "import_definitions", file, "--dry-run", "--skip-if-unchanged", "--skip-unsupported")
	for _, want := range []string{"report=true", "dry_run=true", "skip_if_unchanged=true", "skip_unsupported=true"} {
		if !strings.Contains(query, want) {
			t.Errorf("asks with %q, want %s in it", query, want)
		}
	}
}

// TestExportIsPrivate: a file that was there before can be read by its owner only when hashes of passwords are in it.
func TestExportIsPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "definitions.json")
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, failure := run(t, says(200, `{"users":[]}`), "export_definitions", file); code != ExitOK {
		t.Fatal(code, failure)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
