package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
)

// The changes of policies, over the management API.
const (
	setPolicy     = "policy.set"
	clearPolicy   = "policy.clear"
	setOperator   = "operator-policy.set"
	clearOperator = "operator-policy.clear"
)

// policyNames is how many policies a run has. The higher its number, the higher its priority: of two with the same either may win.
const policyNames = 3

// applied is how long RabbitMQ's queues may take until they do what their policy says, after the management API has named it.
const applied = 150 * time.Millisecond

// isPolicy tells whether a method is one of them.
func (o *op) isPolicy() bool {
	return o.kind == setPolicy || o.kind == clearPolicy || o.kind == setOperator || o.kind == clearOperator
}

// policy sets or clears one, of users or of operators. It applies to one queue of the run, or to all with the flag "every", or with "exchange" to an exchange.
func policy(w *world, _ *channel, o *op) string {
	kind := "policies"
	if o.kind == setOperator || o.kind == clearOperator {
		kind = "operator-policies"
	}
	path := "/api/" + kind + "/%2F/" + url.PathEscape(fmt.Sprint(w.prefix, "p", o.n))
	if o.kind == clearPolicy || o.kind == clearOperator {
		return w.manage(http.MethodDelete, path, nil, nil)
	}
	pattern, to := "^"+w.queueName(o.queue)+"$", "queues"
	switch {
	case o.is("exchange"):
		pattern, to = "^"+w.exchangeName(o.exchange)+"$", "exchanges"
	case o.is("every"):
		pattern = "^" + w.prefix + "q"
	}
	return w.manage(http.MethodPut, path, map[string]any{"pattern": pattern, "definition": w.named(o.args), "priority": o.n, "apply-to": to}, nil)
}

// manage asks the management API and returns the status, without the text, which is not the same.
func (w *world) manage(method, path string, body, answer any) string {
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			return err.Error()
		}
	}
	req, err := http.NewRequest(method, w.http+path, &b)
	if err != nil {
		return err.Error()
	}
	req.SetBasicAuth(db.User, db.User)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && answer != nil && resp.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode)
}

// policies are those that the queues are said to have.
func (w *world) policies() string {
	list := make([]string, queues)
	for q := range list {
		var answer struct {
			Policy   string `json:"policy"`
			Operator string `json:"operator_policy"`
		}
		if status := w.manage(http.MethodGet, "/api/queues/%2F/"+url.PathEscape(w.queueName(q)), nil, &answer); status == "200" {
			list[q] = strings.TrimPrefix(answer.Policy, w.prefix) + " " + strings.TrimPrefix(answer.Operator, w.prefix)
		}
	}
	return fmt.Sprintf("; policies %q", list)
}
