package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/warrenmq/warren/broker"
)

// refusal is an error with its HTTP form: {"error":…,"reason":…}.
type refusal struct {
	status int
	Short  string `json:"error"`
	Reason string `json:"reason"`
}

func (r *refusal) Error() string { return r.Short + ": " + r.Reason }

var (
	errNotFound = &refusal{http.StatusNotFound, "Object Not Found", "Not Found"}
	errMethod   = &refusal{http.StatusMethodNotAllowed, "Method Not Allowed", "Method Not Allowed"}
)

// badRequest is the refusal of content that makes no sense.
func badRequest(reason string) *refusal {
	return &refusal{http.StatusBadRequest, "bad_request", reason}
}

// ofBroker gives the broker's refusals their HTTP form; other errors stay as they are.
func ofBroker(err error) error {
	e, ok := errors.AsType[*broker.Error](err)
	if !ok {
		return err
	}
	switch e.Kind {
	case broker.NotFound:
		return errNotFound
	case broker.AccessRefused, broker.NotAllowed:
		return unauthorised(e.Text)
	case broker.Internal, broker.Unavailable, broker.TimedOut:
		return err
	}
	return badRequest(e.Text)
}

// notFoundAs gives the refusal for what a request would act on and that is not there RabbitMQ's form: why, or the
// broker's text if that is empty. What is merely looked at is an Object Not Found. Other errors stay as they are.
func notFoundAs(err error, why string) error {
	e, ok := errors.AsType[*broker.Error](err)
	if !ok || e.Kind != broker.NotFound {
		return err
	}
	if why == "" {
		why = e.Text
	}
	return &refusal{http.StatusNotFound, "not_found", why}
}

func unauthorised(reason string) *refusal {
	return &refusal{http.StatusUnauthorized, "not_authorised", reason}
}

// shortTimeout is the error of an answer that what was asked has not been done in time: a change may have been made, or may be yet.
const shortTimeout = "timeout"

// shortOf names what is no refusal.
func shortOf(err error) string {
	e, ok := errors.AsType[*broker.Error](err)
	if ok && e.Kind == broker.TimedOut && !e.Unasked || errors.Is(err, context.DeadlineExceeded) {
		return shortTimeout
	}
	return "service_unavailable"
}

// refuse sends err. One that is no refusal is the node's own trouble: 503, since
// another node may do better.
func (a *API) refuse(w http.ResponseWriter, err error) {
	if f, ok := errors.AsType[*failedImport](err); ok {
		a.write(w, f.status, f)
		return
	}
	if held, ok := errors.AsType[*HeldUp](err); ok {
		w.Header().Set("Retry-After", strconv.Itoa(held.seconds()))
		a.write(w, http.StatusTooManyRequests, &refusal{0, "too_many_requests", "Too many failed logins, try again in " + strconv.Itoa(held.seconds()) + " s"})
		return
	}
	if _, ok := errors.AsType[*Busy](err); ok {
		w.Header().Set("Retry-After", "1")
	}
	var r *refusal
	if !errors.As(err, &r) {
		a.cfg.Logger.Warn("management request failed", "err", err)
		r = &refusal{http.StatusServiceUnavailable, shortOf(err), err.Error()}
	}
	if r.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="RabbitMQ Management"`)
	}
	a.write(w, r.status, r)
}

// created is the answer to a request that made something new: 201 without content.
type created struct {
	location string // of the new thing, if that is not where the request went
}

// answer sends body, or 204 for nil.
func (a *API) answer(w http.ResponseWriter, body any, turn *answering) {
	switch body := body.(type) {
	case nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case created:
		if body.location != "" {
			w.Header().Set("Location", body.location)
		}
		w.WriteHeader(http.StatusCreated)
		return
	case attachment:
		w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(body.name)+`"`)
		a.writeLarge(w, http.StatusOK, body.body, turn)
		return
	case underWay:
		a.write(w, http.StatusAccepted, body)
		return
	}
	a.writeLarge(w, http.StatusOK, body, turn)
}

// write sends what is known to be small.
func (a *API) write(w http.ResponseWriter, status int, body any) {
	if raw, ok := a.encoded(w, body); ok {
		a.send(w, status, raw, func() {})
	}
}

// writeLarge sends what may have tens of MiB, when there is room for it.
func (a *API) writeLarge(w http.ResponseWriter, status int, body any, turn *answering) {
	raw, ok := a.encoded(w, body)
	if !ok {
		return
	}
	conn := http.NewResponseController(w)
	if err := turn.enter(len(raw), func() { _ = conn.SetWriteDeadline(time.Now()) }); err != nil {
		w.Header().Del("Content-Disposition")
		a.refuse(w, err)
		return
	}
	a.send(w, status, raw, turn.moves)
	if turn.end() {
		_ = conn.SetWriteDeadline(time.Time{}) // it was written all the same, or the connection ends
		a.cfg.Logger.Info("a client read too little of a large answer, for which others wait", "bytes", len(raw))
	}
}

// encoded is the JSON of body. If there is none, the client has been told.
func (a *API) encoded(w http.ResponseWriter, body any) (raw []byte, ok bool) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // people read <<"…">> in refusals
	if err := enc.Encode(body); err != nil {
		a.cfg.Logger.Error("management answer", "err", err)
		http.Error(w, "", http.StatusInternalServerError)
		return nil, false
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), true
}

// send writes an answer in parts, and tells of each.
func (a *API) send(w http.ResponseWriter, status int, raw []byte, moves func()) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(status)
	for part := range slices.Chunk(raw, answerLarge) {
		if _, err := w.Write(part); err != nil {
			a.cfg.Logger.Debug("management answer not written", "err", err)
			return
		}
		moves()
	}
}
