package management

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/warrenmq/warren/stats"
)

// samplesMax bounds the samples of one answer, as in RabbitMQ.
const samplesMax = 500

// Details are what RabbitMQ shows of a counter beside it.
type Details struct {
	Rate    float64  `json:"rate"` // per second
	Samples []Sample `json:"samples,omitempty"`
	AvgRate *float64 `json:"avg_rate,omitempty"`
	Avg     *float64 `json:"avg,omitempty"`
}

// Sample is what a counter was at a time.
type Sample struct {
	Sample    uint64 `json:"sample"`
	Timestamp int64  `json:"timestamp"` // ms since 1970
}

// MessageStats are counters by RabbitMQ's names, each with its details behind "_details".
type MessageStats map[string]any

// Counters that RabbitMQ shows of each kind of objects, beside deliver_get.
var (
	countersOfQueue    = []stats.Counter{stats.Publish, stats.Deliver, stats.DeliverNoAck, stats.Get, stats.GetNoAck, stats.GetEmpty, stats.Ack, stats.Redeliver}
	countersOfChannel  = append([]stats.Counter{stats.Confirm, stats.ReturnUnroutable, stats.DropUnroutable}, countersOfQueue...)
	countersOfExchange = []stats.Counter{stats.PublishIn, stats.PublishOut}
)

// messageStats shows counters; nil if nothing was ever counted, when RabbitMQ shows none.
func messageStats(show []stats.Counter, c *counted, h *past) MessageStats {
	some := false
	for _, x := range show {
		some = some || c.Set[x] > 0
	}
	if !some {
		return nil
	}
	m := MessageStats{}
	delivers := false
	for _, x := range show {
		m[x.String()], m[x.String()+"_details"] = c.Set[x], h.details(c.Rates[x], func(s *stats.Set) uint64 { return s[x] })
		delivers = delivers || x == stats.Deliver
	}
	if delivers {
		m["deliver_get"], m["deliver_get_details"] = c.Set.DeliverGet(), h.details(c.Rates.DeliverGet(), (*stats.Set).DeliverGet)
	}
	return m
}

// ChannelStats are the message_stats of a channel.
func ChannelStats(set stats.Set, rates stats.Rates) MessageStats {
	return messageStats(countersOfChannel, &counted{set, rates}, nil)
}

// withPast adds samples to counters that are shown already.
func (m MessageStats) withPast(show []stats.Counter, h *past) {
	if m == nil || h == nil {
		return
	}
	add := func(name string, value func(*stats.Set) uint64) {
		if d, ok := m[name+"_details"]; ok {
			m[name+"_details"] = h.details(rateOf(d), value)
		}
	}
	for _, x := range show {
		add(x.String(), func(s *stats.Set) uint64 { return s[x] })
	}
	add("deliver_get", (*stats.Set).DeliverGet)
}

// rateOf is the rate in details, as they are made here or come from another node.
func rateOf(details any) float64 {
	switch d := details.(type) {
	case Details:
		return d.Rate
	case map[string]any:
		rate, _ := d["rate"].(float64)
		return rate
	}
	return 0
}

// span is which samples a request wants, in ms; the zero span is none.
type span struct{ age, step int64 }

// spanOf reads the parameters that begin with a name.
func spanOf(r *http.Request, name string) (s span, err error) {
	v := r.URL.Query()
	age, err1 := strconv.ParseInt(v.Get(name+"_age"), 10, 64)
	incr, err2 := strconv.ParseInt(v.Get(name+"_incr"), 10, 64)
	if err1 != nil || err2 != nil {
		return s, nil // as if they were not there, as in RabbitMQ
	}
	if age <= 0 || incr <= 0 || age/incr > samplesMax || age > 1<<32 {
		return s, &refusal{http.StatusBadRequest, "invalid_range_parameters", fmt.Sprintf("Invalid range parameters: age %d, incr %d", age, incr)}
	}
	return span{age * 1000, incr * 1000}, nil
}

// times are those of the samples, ascending.
func (s span) times(now int64) (list []int64) {
	if s.step == 0 {
		return nil
	}
	last := now / s.step * s.step
	for t := last - s.age/s.step*s.step; t <= last; t += s.step {
		list = append(list, t)
	}
	return list
}

// past is what an object had counted at times; nil: nobody asked.
type past struct {
	times []int64
	sets  []stats.Set
}

// details shows one counter's samples, the newest first.
func (h *past) details(rate float64, value func(*stats.Set) uint64) Details {
	d := Details{Rate: rate}
	if h == nil || len(h.sets) == 0 {
		return d
	}
	sum := 0.0
	n := len(h.sets)
	for i := n - 1; i >= 0; i-- {
		v := value(&h.sets[i])
		sum += float64(v)
		d.Samples = append(d.Samples, Sample{v, h.times[i]})
	}
	avg, avgRate := sum/float64(n), 0.0
	if n > 1 {
		avgRate = float64(int64(d.Samples[0].Sample-d.Samples[n-1].Sample)) / (float64(h.times[n-1]-h.times[0]) / 1e3)
	}
	d.Avg, d.AvgRate = &avg, &avgRate
	return d
}

// peerPast asks for the history of an object of a node. Answer: peerSets.
type peerPast struct {
	Kind  stats.Kind `json:"kind"`
	ID    uint64     `json:"id,omitempty"`
	Name  string     `json:"name,omitempty"`
	Times []int64    `json:"times"`
}

type peerSets struct {
	Sets []stats.Set `json:"sets"` // none: the object is not known there
}

func (a *API) answerPast(req *peerPast) ([]byte, error) {
	if req == nil || len(req.Times) > samplesMax+1 {
		return nil, fmt.Errorf("management request: history of %v", req)
	}
	sets, _ := a.cfg.Sampler.History(stats.Key{Kind: req.Kind, ID: req.ID, Name: req.Name}, req.Times)
	return json.Marshal(peerSets{sets})
}

// past adds up what an object had counted on all nodes; nil if no samples are wanted.
func (a *API) past(ctx context.Context, k stats.Key, s span) *past { return a.pastAt(ctx, "", k, s) }

// pastAt is what an object had counted on the node of that name, as past is of all.
func (a *API) pastAt(ctx context.Context, at string, k stats.Key, s span) *past {
	times := s.times(a.now().UnixMilli())
	if times == nil {
		return nil
	}
	h := &past{times: times, sets: make([]stats.Set, len(times))}
	var mu sync.Mutex
	add := func(sets []stats.Set) {
		mu.Lock()
		defer mu.Unlock()
		for i := range min(len(sets), len(h.sets)) {
			h.sets[i].Add(&sets[i])
		}
	}
	if at == "" || at == a.localName() {
		local, _ := a.cfg.Sampler.History(k, times)
		add(local)
	}
	err := a.eachPeer(ctx, func(ctx context.Context, node string) error {
		if name, _, _ := strings.Cut(node, "/"); at != "" && name != at {
			return nil
		}
		var answer peerSets
		err := a.ask(ctx, node, peerRequest{Op: opPast, Past: &peerPast{k.Kind, k.ID, k.Name, times}}, &answer)
		add(answer.Sets)
		return err
	})
	if err != nil {
		a.cfg.Logger.Info("samples of some nodes are missing", "err", err)
	}
	return h
}
