package management

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/shovel"
)

// shovels is what the API needs of the node's [broker.Broker] for shovels.
type shovels interface {
	Shovels() []*broker.Shovel
	PutShovel(ctx context.Context, vhost, name, user, value string) error
	DeleteShovel(ctx context.Context, vhost, name string, since uint64) (there bool, err error)
}

// ShovelCrew runs those of the node, a *[shovel.Crew].
type ShovelCrew interface {
	Statuses() []shovel.Status
	Restart(vhost, name string) bool
}

// ShovelStatus is the JSON form of what a shovel does, with RabbitMQ's names for what RabbitMQ has.
type ShovelStatus struct {
	Node          string  `json:"node"`
	Timestamp     string  `json:"timestamp,omitempty"`
	Name          string  `json:"name"`
	VHost         string  `json:"vhost"`
	Type          string  `json:"type"`
	State         string  `json:"state"`
	Reason        string  `json:"reason,omitempty"`
	SrcURI        string  `json:"src_uri,omitempty"`
	SrcProtocol   string  `json:"src_protocol"`
	SrcQueue      string  `json:"src_queue,omitempty"`
	SrcExchange   string  `json:"src_exchange,omitempty"`
	SrcKey        string  `json:"src_exchange_key,omitempty"`
	DestURI       string  `json:"dest_uri,omitempty"`
	DestProtocol  string  `json:"dest_protocol"`
	DestQueue     string  `json:"dest_queue,omitempty"`
	DestExchange  *string `json:"dest_exchange,omitempty"`
	DestKey       *string `json:"dest_exchange_key,omitempty"`
	BlockedStatus string  `json:"blocked_status,omitempty"`
	// Remaining is a number, or "unlimited".
	Remaining any    `json:"remaining,omitempty"`
	Forwarded uint64 `json:"forwarded"`
	Pending   int    `json:"pending"`
	// Waiting of the pending ones were refused, or no queue wanted them; they are tried again.
	Waiting int `json:"waiting"`
}

const componentShovel = "shovel"

func (a *API) routeShovels() {
	list := monitor(func(r *http.Request, u User) (any, error) {
		vhost := ""
		if r.PathValue("vhost") != "" {
			var err error
			if vhost, err = a.vhost(r, u); err != nil {
				return nil, err
			}
		}
		return paged(r, a.shovelStatuses(r.Context(), vhost, ""))
	})
	a.handle("GET /api/shovels", list)
	a.handle("GET /api/shovels/{vhost}", list)
	a.handle("GET /api/shovels/vhost/{vhost}/{name}", monitor(func(r *http.Request, u User) (any, error) {
		vhost, err := a.vhost(r, u)
		if err != nil {
			return nil, err
		}
		return sure(a, r, func() (any, error) {
			if l := a.shovelStatuses(r.Context(), vhost, r.PathValue("name")); len(l) > 0 {
				return l[0], nil
			}
			return nil, errNotFound
		})
	}))
	changer := func(f func(r *http.Request, vhost, name string) error) func(*http.Request, User) (any, error) {
		return func(r *http.Request, u User) (any, error) {
			if !u.may(auth.TagAdministrator, auth.TagPolicymaker) {
				return nil, errNotAuthorised
			}
			vhost, err := a.vhost(r, u)
			if err != nil {
				return nil, err
			}
			return nil, f(r, vhost, r.PathValue("name"))
		}
	}
	a.handle("DELETE /api/shovels/vhost/{vhost}/{name}", changer(a.deleteShovel))
	a.handle("DELETE /api/shovels/vhost/{vhost}/{name}/restart", changer(a.restartShovel))
}

// putShovel makes or replaces a shovel: the value of a parameter.
func (a *API) putShovel(r *http.Request, u User, vhost, name string, value json.RawMessage) (any, error) {
	d, err := shovel.Parse(value)
	if err != nil {
		return nil, badRequest("Validation failed\n\n" + err.Error() + "\n")
	}
	for _, uri := range slices.Concat(d.Source.URIs, d.Destination.URIs) {
		if why := mayLend(u, &uri); why != "" {
			return nil, badRequest("Validation failed\n\n" + why + "\n")
		}
	}
	var text bytes.Buffer
	if err := json.Compact(&text, value); err != nil {
		return nil, badRequest(err.Error())
	}
	isNew := !slices.ContainsFunc(a.cfg.Broker.Shovels(), func(s *broker.Shovel) bool { return s.Vhost == vhost && s.Name == name })
	return made(isNew, ofBroker(a.cfg.Broker.PutShovel(r.Context(), vhost, name, u.Name, text.String())))
}

// mayLend says why a user may not have a shovel log in to the cluster as a URI wants, "" if so.
func mayLend(u User, uri *shovel.URI) string {
	brought := u.Login.Rights != nil
	switch {
	case !uri.Local:
		return ""
	case uri.User == "" && brought:
		return u.Login.RightsFrom() + " end with the login: the URI has to name a user (amqp://USER@), which takes an administrator"
	case uri.User != "" && (uri.User != u.Name || brought) && !u.may(auth.TagAdministrator):
		return "only an administrator may have a shovel log in as '" + uri.User + "' without a password"
	}
	return ""
}

func (a *API) deleteShovel(r *http.Request, vhost, name string) error {
	there, err := a.cfg.Broker.DeleteShovel(r.Context(), vhost, name, 0)
	if err == nil && !there {
		return errNotFound
	}
	return ofBroker(err)
}

// restartShovel has the node that runs a shovel connect anew.
func (a *API) restartShovel(r *http.Request, vhost, name string) error {
	if a.cfg.Shovels.Restart(vhost, name) {
		return nil
	}
	found := make(chan struct{}, 1)
	err := a.eachPeer(r.Context(), func(ctx context.Context, node string) error {
		var done peerRestarted
		err := a.ask(ctx, node, peerRequest{Op: opRestartShovel, VHost: vhost, Name: name}, &done)
		if done.Restarted {
			select {
			case found <- struct{}{}:
			default:
			}
		}
		return err
	})
	select {
	case <-found:
		return nil
	default:
		return or(err, errNotFound)
	}
}

// peerRestarted is the answer to opRestartShovel.
type peerRestarted struct {
	Restarted bool `json:"restarted"`
}

// peerShovels is the answer to opShovels.
type peerShovels struct {
	Node    string          `json:"node"`
	Shovels []shovel.Status `json:"shovels"`
}

// shovelStatuses are those of all nodes, of one vhost or all, and of one name or all.
func (a *API) shovelStatuses(ctx context.Context, vhost, name string) []ShovelStatus {
	type run struct {
		node string
		shovel.Status
	}
	key := func(vhost, name string) string { return vhost + "\x00" + name }
	runs := map[string]run{}
	for _, s := range a.cfg.Shovels.Statuses() {
		runs[key(s.VHost, s.Name)] = run{a.localName(), s}
	}
	for _, p := range a.peersShovels(ctx) {
		for _, s := range p.Shovels {
			if was, ok := runs[key(s.VHost, s.Name)]; !ok || was.Since.Before(s.Since) {
				runs[key(s.VHost, s.Name)] = run{p.Node, s}
			}
		}
	}
	list := []ShovelStatus{}
	for _, s := range a.cfg.Broker.Shovels() {
		if vhost != "" && s.Vhost != vhost || name != "" && s.Name != name {
			continue
		}
		at := runs[key(s.Vhost, s.Name)]
		list = append(list, describeShovel(s, at.node, &at.Status))
	}
	slices.SortFunc(list, func(x, y ShovelStatus) int {
		return cmp.Or(strings.Compare(x.VHost, y.VHost), strings.Compare(x.Name, y.Name))
	})
	return list
}

// peersShovels asks the other nodes; those that do not answer are missing.
func (a *API) peersShovels(ctx context.Context) []peerShovels {
	if len(a.cfg.Broker.Shovels()) == 0 {
		return nil
	}
	answers := make(chan peerShovels, len(a.cfg.Peers())+16)
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		var n peerShovels
		if err := a.ask(ctx, node, peerRequest{Op: opShovels}, &n); err != nil {
			return err
		}
		select {
		case answers <- n:
		default: // more nodes than there were a moment ago
		}
		return nil
	})
	if err != nil {
		a.cfg.Logger.Warn("what shovels do on some nodes is missing", "err", err)
	}
	close(answers)
	var list []peerShovels
	for n := range answers {
		list = append(list, n)
	}
	return list
}

// describeShovel puts together what a shovel is to do, and what it does.
func describeShovel(s *broker.Shovel, node string, st *shovel.Status) ShovelStatus {
	j := ShovelStatus{
		Node: node, Name: s.Name, VHost: s.Vhost, Type: "dynamic", State: string(cmp.Or(st.State, shovel.Starting)), Reason: st.Reason,
		SrcURI: st.Source, DestURI: st.Destination, SrcProtocol: "amqp091", DestProtocol: "amqp091",
		Forwarded: st.Forwarded, Pending: st.Pending, Waiting: st.Waiting,
	}
	if !st.Since.IsZero() {
		j.Timestamp = st.Since.UTC().Format("2006-01-02 15:04:05")
	}
	if d, err := shovel.Parse([]byte(s.Value)); err == nil {
		j.SrcQueue, j.SrcExchange, j.SrcKey = d.Source.Queue, d.Source.Exchange, d.Source.Key
		if j.DestQueue = d.Destination.Queue; j.DestQueue == "" {
			j.DestExchange, j.DestKey = d.Destination.Exchange, d.Destination.Key
		}
	}
	if st.State == shovel.Running {
		j.BlockedStatus, j.Remaining = "running", "unlimited"
		if st.Blocked {
			j.BlockedStatus = "blocked"
		}
		if st.Remaining >= 0 {
			j.Remaining = st.Remaining
		}
	}
	return j
}
