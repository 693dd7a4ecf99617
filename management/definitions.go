package management

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/warrenmq/warren/definitions"
)

// definitionsService exports and imports definitions, a *[definitions.Service].
type definitionsService interface {
	Export(ctx context.Context, vhost string) (*definitions.Document, error)
	Import(ctx context.Context, raw []byte, req definitions.Request) (r definitions.Report, policies []string, err error)
}

func (a *API) routeDefinitions() {
	for _, path := range []string{"/api/definitions", "/api/definitions/{vhost}"} {
		a.handle("GET "+path, a.admin(a.exportDefinitions))
		a.handle("POST "+path, func(r *http.Request, u User) (any, error) {
			return a.admin(func(r *http.Request) (any, error) { return a.importDefinitions(r, u) })(r, u)
		})
		a.bodyMax["POST "+path] = definitions.BytesMax
	}
}

// attachment is an answer that browsers keep as a file of that name.
type attachment struct {
	name string
	body any
}

// definitionsVhost is the virtual host that a path names, "" for all.
func (a *API) definitionsVhost(r *http.Request) (string, error) {
	name := r.PathValue("vhost")
	if name == "" {
		return "", nil
	}
	if ok, err := a.cfg.Broker.HasVhost(r.Context(), name); err != nil || !ok {
		return "", or(err, badRequest("vhost_not_found"))
	}
	return name, nil
}

func (a *API) exportDefinitions(r *http.Request) (any, error) {
	vhost, err := a.definitionsVhost(r)
	if err != nil {
		return nil, err
	}
	d, err := a.cfg.Definitions.Export(r.Context(), vhost)
	switch name := r.URL.Query().Get("download"); {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, badRequest("vhost_not_found")
	case name != "":
		return attachment{name, d}, nil
	}
	return d, nil
}

// failedImport is a refusal with what an import did nevertheless, or with everything that is wrong.
type failedImport struct {
	*refusal

	Report   *definitions.Report   `json:"report,omitempty"`
	Problems []definitions.Problem `json:"problems,omitempty"`
}

func (f *failedImport) Unwrap() error { return f.refusal }

// importDefinitions answers as RabbitMQ, with 204, unless something was left out or the report is asked for.
func (a *API) importDefinitions(r *http.Request, u User) (any, error) {
	vhost, err := a.definitionsVhost(r)
	if err != nil {
		return nil, err
	}
	var wanted bool
	req := definitions.Request{VHost: vhost, User: u.Name}
	for name, to := range map[string]*bool{
		"dry_run": &req.DryRun, "skip_unsupported": &req.SkipUnsupported, "skip_if_unchanged": &req.SkipUnchanged, "report": &wanted,
	} {
		switch word := r.URL.Query().Get(name); word {
		case "true":
			*to = true
		case "", "false":
		default:
			return nil, badRequest(fmt.Sprintf("%s is %s, want true or false", name, term(word)))
		}
	}
	if req.SkipUnchanged && vhost != "" {
		return nil, badRequest("skip_if_unchanged is for the definitions of all virtual hosts")
	}
	raw, err := definitionsOf(r)
	if err != nil {
		return nil, err
	}
	report, changed, err := a.cfg.Definitions.Import(r.Context(), raw, req)
	for _, name := range changed {
		a.SettlePolicies(r.Context(), name)
	}
	if problems, ok := errors.AsType[*definitions.Invalid](err); ok {
		return nil, &failedImport{refusal: badRequest(problems.Error()), Problems: problems.Problems}
	}
	if err != nil {
		f := &failedImport{refusal: badRequest(importText(&report, err)), Report: &report}
		if !definitions.Refused(err) {
			f.refusal = &refusal{http.StatusServiceUnavailable, "service_unavailable", f.Reason}
		}
		return nil, f
	}
	if wanted || req.DryRun || len(report.Skipped) > 0 {
		return report, nil
	}
	return nil, nil
}

// importText tells what an import that failed has done.
func importText(r *definitions.Report, err error) string {
	text := err.Error()
	if len(r.Failed) > 0 {
		text = r.Failed[0].String() + ": " + r.Failed[0].Reason
	}
	return text + ". Imported in part: " + r.Summary()
}

// definitionsOf reads the document of a request: its body, or the file of a form.
func definitionsOf(r *http.Request) ([]byte, error) {
	body := io.Reader(r.Body)
	if typ, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && typ == "multipart/form-data" {
		form, err := r.MultipartReader()
		if err != nil {
			return nil, badRequest("not a form: " + err.Error())
		}
		for {
			part, err := form.NextPart()
			if errors.Is(err, io.EOF) {
				return nil, badRequest("the form has no part named file")
			}
			if err != nil {
				return nil, tooLarge(err, "not a form")
			}
			if part.FormName() == "file" {
				body = part
				break
			}
		}
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, tooLarge(err, "body not read")
	}
	return raw, nil
}

func tooLarge(err error, other string) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return badRequest("Exceeded HTTP request body size limit")
	}
	return badRequest(other)
}

// fileName is a name that can stand in a header.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\/;`, r) {
			return '_'
		}
		return r
	}, name)
}
