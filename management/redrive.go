package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
)

// redrives is what the API needs of the broker for redrives. Errors are *broker.Error.
type redrives interface {
	StartRedrive(ctx context.Context, u broker.User, vhost, name string, r broker.Redrive) (broker.RedriveStatus, error)
	StopRedrive(ctx context.Context, u broker.User, vhost, name string) (broker.RedriveStatus, error)
	RedriveStatus(ctx context.Context, u broker.User, vhost, name string) (broker.RedriveStatus, error)
	// ReleaseParked has parked dead letters routed again.
	ReleaseParked(ctx context.Context, u broker.User, vhost, name string) (broker.Released, error)
	PlanRedrive(ctx context.Context, u broker.User, vhost, name string, r broker.Redrive) (broker.RedrivePlan, error)
	// DeadLetters counts a queue's messages by their newest death.
	DeadLetters(ctx context.Context, u broker.User, vhost, name string) (broker.DeadLetters, error)
}

// redriveForm is the body of a request for a redrive.
type redriveForm struct {
	// DryRun asks what would be done.
	DryRun  bool   `json:"dry_run"`
	To      string `json:"to"`
	Queue   string `json:"queue"`
	Discard bool   `json:"discard"`
	Rate    uint32 `json:"rate"` // messages a second

	Reasons    []string `json:"reasons"`
	From       string   `json:"from"`
	OlderThan  string   `json:"older_than"`
	NewerThan  string   `json:"newer_than"`
	IDs        []uint64 `json:"ids"`
	MessageIDs []string `json:"message_ids"`
	Header     string   `json:"header"` // name=value
	Retried    *bool    `json:"retried"`
}

func (f *redriveForm) redrive() (r broker.Redrive, err error) {
	for name, empty := range map[string]bool{
		"reasons": f.Reasons != nil && len(f.Reasons) == 0, "ids": f.IDs != nil && len(f.IDs) == 0, "message_ids": f.MessageIDs != nil && len(f.MessageIDs) == 0,
	} {
		if empty { // whoever has found none of those that are meant does not mean all
			return r, badRequest(name + " is an empty list: leave it out to choose by something else, or everything")
		}
	}
	r = broker.Redrive{To: f.To, Queue: f.Queue, Discard: f.Discard, Rate: f.Rate, Filter: broker.Filter{
		Reasons: f.Reasons, From: f.From, IDs: f.IDs, MessageIDs: f.MessageIDs, Retried: f.Retried,
	}}
	if r.Filter.OlderThan, err = age(f.OlderThan); err != nil {
		return r, err
	}
	if r.Filter.NewerThan, err = age(f.NewerThan); err != nil {
		return r, err
	}
	r.Filter.Header, r.Filter.HeaderValue, err = headerOf(f.Header)
	return r, err
}

// headerOf reads name=value; "" is none.
func headerOf(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if text != "" && (!ok || name == "") {
		return "", "", badRequest("header '" + text + "' is not of the form name=value")
	}
	return name, value, nil
}

func (a *API) routeRedrives() {
	const path = " /api/warren/queues/{vhost}/{name}/redrive"
	a.handle("POST"+path, a.startRedrive)
	a.handle("GET"+path, a.redriveStatus)
	a.handle("DELETE"+path, a.stopRedrive)
	a.handle("POST /api/warren/queues/{vhost}/{name}/release", a.releaseParked)
}

// startRedrive begins a redrive, or tells what it would do. It moves or removes what is others', so that
// it takes who may set policies.
func (a *API) startRedrive(r *http.Request, u User) (any, error) {
	vhost, err := a.redriveVhost(r, u)
	if err != nil {
		return nil, err
	}
	var form redriveForm
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, badRequest("body: " + err.Error())
	}
	if !utf8.Valid(raw) {
		return nil, errNotText
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&form); err != nil && !errors.Is(err, io.EOF) {
		return nil, badRequest("body: " + err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, badRequest("body: something follows the object") // of two of them one would be left out, which may choose messages
	}
	req, err := form.redrive()
	if err != nil {
		return nil, err
	}
	if form.DryRun {
		plan, err := a.cfg.Broker.PlanRedrive(r.Context(), atBroker(u), vhost, r.PathValue("name"), req)
		return plan, ofBroker(err)
	}
	st, err := a.cfg.Broker.StartRedrive(r.Context(), atBroker(u), vhost, r.PathValue("name"), req)
	return st, ofBroker(err)
}

func (a *API) stopRedrive(r *http.Request, u User) (any, error) {
	vhost, err := a.redriveVhost(r, u)
	if err != nil {
		return nil, err
	}
	st, err := a.cfg.Broker.StopRedrive(r.Context(), atBroker(u), vhost, r.PathValue("name"))
	return st, ofBroker(err)
}

// releaseParked has the queue's dead letters that have no way looked at again.
func (a *API) releaseParked(r *http.Request, u User) (any, error) {
	vhost, err := a.redriveVhost(r, u)
	if err != nil {
		return nil, err
	}
	done, err := a.cfg.Broker.ReleaseParked(r.Context(), atBroker(u), vhost, r.PathValue("name"))
	return done, ofBroker(err)
}

func (a *API) redriveStatus(r *http.Request, u User) (any, error) {
	vhost, err := a.vhost(r, u)
	if err != nil {
		return nil, err
	}
	st, err := a.cfg.Broker.RedriveStatus(r.Context(), atBroker(u), vhost, r.PathValue("name"))
	return st, ofBroker(err)
}

func (a *API) redriveVhost(r *http.Request, u User) (string, error) {
	if !u.may(auth.TagPolicymaker, auth.TagAdministrator) {
		return "", errNotAuthorised
	}
	return a.vhost(r, u)
}
