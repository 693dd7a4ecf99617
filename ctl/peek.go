package ctl

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// chosen are the options by which verbs choose messages. The node says what is wrong
// with them.
type chosen struct {
	reasons, ids, messageIDs     []string
	retried, never               bool
	from, older, newer, header   string
	state, encoding              string
	offset, count, truncateBytes int
}

func (c *chosen) addFilter(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&c.reasons, "reason", nil, "only messages whose newest death has this `reason`; may be repeated")
	f.StringVar(&c.from, "from", "", "only messages that died in this `queue` last")
	f.StringVar(&c.older, "older-than", "", "only messages that died longer ago: 90s, 15m, 2h")
	f.StringVar(&c.newer, "newer-than", "", "only messages that died more recently")
	f.StringSliceVar(&c.ids, "id", nil, "only the message with this `number` in the queue, as peek shows it; may be repeated")
	f.StringSliceVar(&c.messageIDs, "message-id", nil, "only messages with this property message-id; may be repeated")
	f.StringVar(&c.header, "header", "", "only messages with this header, as `name=value`")
	f.BoolVar(&c.retried, "retried", false, "only messages that were sent back before")
	f.BoolVar(&c.never, "never-retried", false, "only messages that nobody has sent back yet")
	cmd.MarkFlagsMutuallyExclusive("retried", "never-retried")
}

func (c *chosen) addPeek(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.state, "state", "ready", "where they stand: ready, delayed, unacked, outbox or parked")
	f.IntVar(&c.offset, "offset", 0, "pass over so many messages first")
	f.IntVar(&c.count, "count", 10, "show so many messages")
	f.IntVar(&c.truncateBytes, "truncate", 1000, "show so many bytes of each body")
	f.StringVar(&c.encoding, "encoding", "auto", "form of the bodies: auto (text where it is UTF-8) or base64")
	c.addFilter(cmd)
}

// parameters are the filter's in a request.
func (c *chosen) parameters() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"from": c.from, "older_than": c.older, "newer_than": c.newer, "header": c.header} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if r := c.wantRetried(); r != nil {
		q.Set("retried", strconv.FormatBool(*r))
	}
	for name, list := range map[string][]string{"reason": c.reasons, "id": c.ids, "message_id": c.messageIDs} {
		if len(list) > 0 {
			q[name] = list
		}
	}
	return q
}

// wantRetried is what is asked for of messages that were sent back before, nil if nothing is.
func (c *chosen) wantRetried() *bool {
	if !c.retried && !c.never {
		return nil
	}
	return &c.retried
}

// peeked is what verbs read of a message.
type peeked struct {
	ID         uint64 `json:"id"`
	RoutingKey string `json:"routing_key"`
	Exchange   string `json:"exchange"`
	Payload    string `json:"payload"`
	Bytes      int    `json:"payload_bytes"`
	Properties struct {
		MessageID any `json:"message_id"`
	} `json:"properties"`
	Redelivered bool `json:"redelivered"`
	Retried     bool `json:"retried"`
	Deaths      []struct {
		Queue    string `json:"queue"`
		Reason   string `json:"reason"`
		Count    uint64 `json:"count"`
		LastTime int64  `json:"last_time"`
	} `json:"deaths"`
	Reason string   `json:"reason"`
	DiedAt int64    `json:"died_at"`
	Stage  string   `json:"stage"`
	To     []string `json:"to"`
}

func peekVerbs(t *tool) []*cobra.Command {
	var c chosen
	cmd := t.command(verb{
		use: "peek QUEUE", short: "Look at messages of a queue; nothing is taken, no count or flag changes",
		long: "Look at messages of a queue in the order in which they would be delivered. Nothing is taken,\n" +
			"and no order, count or flag changes. With --formatter json everything is shown that is known of each.",
		min: 1, max: 1,
		run: func(ctx context.Context, s *session, args []string) error {
			s.say("Messages of queue %s in vhost %s, %s ...", args[0], s.opt.vhost, c.state)
			return peek(ctx, s, args[0], &c)
		},
	})
	c.addPeek(cmd)
	return []*cobra.Command{cmd}
}

func peek(ctx context.Context, s *session, queue string, c *chosen) error {
	q := c.parameters()
	q.Set("state", c.state)
	q.Set("encoding", c.encoding)
	q.Set("truncate", strconv.Itoa(c.truncateBytes))
	all := []json.RawMessage{}
	for offset := c.offset; ; offset = 0 {
		q.Set("offset", strconv.Itoa(offset))
		q.Set("count", strconv.Itoa(min(c.count-len(all), 1000)))
		var page struct {
			Messages []json.RawMessage `json:"messages"`
			Next     string            `json:"next"`
		}
		if err := s.get(ctx, path("warren", "queues", s.opt.vhost, queue, "messages")+"?"+q.Encode(), &page); err != nil {
			return found(err, errorf(ExitData, "no queue '%s' in vhost '%s'", queue, s.opt.vhost))
		}
		all = append(all, page.Messages...)
		if page.Next == "" || len(all) >= c.count {
			break
		}
		q.Set("after", page.Next)
	}
	if s.opt.formatter == formatJSON {
		raw, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return err
		}
		s.printf("%s\n", raw)
		return nil
	}
	rows := make([]row, len(all))
	for i, raw := range all {
		var m peeked
		if err := json.Unmarshal(raw, &m); err != nil {
			return err
		}
		rows[i] = m.row()
	}
	columns := []string{"id", "message_id", "exchange", "routing_key", "redelivered", "reason", "from", "died", "retried", "bytes", "payload"}
	if c.state == "outbox" || c.state == "parked" {
		columns = []string{"id", "message_id", "exchange", "routing_key", "reason", "died", "retried", "stage", "to", "bytes", "payload"}
	}
	return s.list(columns, rows)
}

// row is a message in a table: the newest death, or the one by which it came into the outbox.
func (m *peeked) row() row {
	r := row{
		"id": json.Number(strconv.FormatUint(m.ID, 10)), "message_id": m.Properties.MessageID, "exchange": m.Exchange,
		"routing_key": m.RoutingKey, "redelivered": m.Redelivered, "retried": m.Retried, "bytes": json.Number(strconv.Itoa(m.Bytes)), "payload": m.Payload,
		"stage": m.Stage, "to": strings.Join(m.To, " "),
	}
	switch {
	case m.Reason != "":
		r["reason"], r["died"] = m.Reason, clock(m.DiedAt)
	case len(m.Deaths) > 0:
		r["reason"], r["from"], r["died"] = m.Deaths[0].Reason, m.Deaths[0].Queue, clock(m.Deaths[0].LastTime)
	}
	return r
}

// clock shows an instant in ms.
func clock(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
