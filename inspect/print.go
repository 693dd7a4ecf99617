package inspect

import (
	"fmt"
	"io"
	"strings"
	"time"
)

func (p *printer) identity(dir string) error {
	b, err := Identity(dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.out, string(b))
	return err
}

func (p *printer) segments(dir string) error { return Segments(dir, p.out) }

func (p *printer) catalog(dir string) error {
	c, err := ReadCatalog(dir)
	if err != nil {
		return err
	}
	return p.show(c, func(w io.Writer) {
		line(w, "cluster", c.ClusterID)
		line(w, "revision", c.Revision)
		line(w, "snapshot", fmt.Sprintf("%d, term %d", c.SnapshotIndex, c.SnapshotTerm))
		line(w, "log", fmt.Sprintf("%d to %d, term %d", c.First, c.Last, c.LastTerm))
		line(w, "term", c.Term)
		line(w, "vote", fmt.Sprintf("%s in term %d", c.VotedFor, c.VoteTerm))
		line(w, "servers", servers(c.Servers))
		line(w, "vhosts", strings.Join(c.VHosts, " "))
		line(w, "users", strings.Join(c.Users, " "))
		line(w, "")
		line(w, "NODE", "NUMBER", "INCARNATION", "ADDRESS", "SUPERSEDED")
		for _, n := range c.Nodes {
			line(w, n.ID, n.Number, n.Incarnation, n.ClusterAddr, n.Superseded)
		}
		line(w, "")
		line(w, "QUEUE", "VHOST", "NAME", "KIND", "STATE", "MEMBERS", "PREFERRED")
		for _, q := range c.Queues {
			line(w, q.ID, q.VHost, q.Name, q.Kind, q.State, strings.Join(q.Members, " "), q.Preferred)
		}
	})
}

func servers(list []Server) string {
	names := make([]string, len(list))
	for i, s := range list {
		if names[i] = s.ID; s.Suffrage != "Voter" {
			names[i] += " (" + s.Suffrage + ")"
		}
	}
	return strings.Join(names, " ")
}

func (p *printer) raft(f *Folder, queue uint64) error {
	list, err := f.Replicas(queue)
	if err != nil {
		return err
	}
	return p.show(list, func(w io.Writer) {
		line(w, "QUEUE", "VHOST", "NAME", "TERM", "VOTE", "LOG", "LAST TERM", "SNAPSHOT", "BYTES", "SERVERS", "DAMAGE")
		for _, r := range list {
			vote := ""
			if r.VotedFor != "" {
				vote = fmt.Sprintf("%s in %d", r.VotedFor, r.VoteTerm)
			}
			line(w, r.Group, r.VHost, r.Name, r.Term, vote, fmt.Sprintf("%d to %d", r.First, r.Last), r.LastTerm, r.SnapshotIndex, r.Bytes, servers(r.Servers), r.Damage)
		}
	})
}

func (p *printer) entries(f *Folder, queue uint64) error {
	list, err := f.Entries(queue, p.from, p.limit)
	if err != nil {
		return err
	}
	return p.show(list, func(w io.Writer) {
		line(w, "INDEX", "TERM", "TYPE", "APPENDED", "BYTES", "SESSION", "COMMANDS")
		for _, e := range list {
			what := strings.Join(e.Commands, "; ")
			if e.Pinned {
				what = "(pinned) " + what
			}
			if e.Problem != "" {
				what += "PROBLEM: " + e.Problem
			}
			line(w, e.Index, e.Term, e.Type, e.Appended.UTC().Format(time.RFC3339Nano), e.Bytes, fmt.Sprintf("%x.%d", e.Session, e.Ordinal), what)
		}
	})
}

func (p *printer) snapshot(f *Folder, queue uint64) error {
	s, err := f.Snapshot(queue)
	if err != nil {
		return err
	}
	return p.show(s, func(w io.Writer) {
		if s == nil {
			line(w, "none")
			return
		}
		line(w, "index", s.Index)
		line(w, "term", s.Term)
		line(w, "installed", s.Installed)
		line(w, "servers", servers(s.Servers))
		line(w, "entries kept", s.Entries)
		line(w, "pins", fmt.Sprint(s.Pins))
		line(w, "manifest bytes", s.Manifest)
		line(w, "stream bytes", s.Stream)
	})
}

func (p *printer) queue(f *Folder, queue uint64) error {
	s, err := f.State(queue)
	if err != nil {
		return err
	}
	return p.show(s, func(w io.Writer) {
		line(w, "queue", fmt.Sprintf("%s in vhost %s", s.Name, s.VHost))
		line(w, "applied", s.Applied)
		line(w, "certain up to", s.Certain)
		line(w, "machine time", s.Time.Format(time.RFC3339Nano))
		line(w, "closed", s.Closed)
		line(w, "messages", s.Messages)
		line(w, "message bytes", s.Bytes)
		line(w, "newest message", s.Tail)
		line(w, "delivered mark", s.Mark)
		line(w, "outbox", s.Outbox)
		line(w, "of it parked", s.Parked)
		line(w, "undecided", s.Undecided)
		line(w, "pinned entries", s.Pinned)
		line(w, "published", s.Counters.Published)
		line(w, "acknowledged", s.Counters.Acked)
		line(w, "moved", s.Counters.Moved)
		for _, x := range s.Sources {
			line(w, fmt.Sprintf("from queue %d", x.Queue), fmt.Sprintf("epoch %d, taken up to %d", x.Epoch, x.Watermark))
		}
		for _, x := range s.Targets {
			line(w, fmt.Sprintf("to queue %d", x.Queue), fmt.Sprintf("next is %d, %d not taken", x.Next, x.Pending))
		}
	})
}

func (p *printer) messages(f *Folder, queue uint64) error {
	s, err := f.State(queue)
	if err != nil {
		return err
	}
	list := s.LiveMessages(max(p.from, 1)-1, p.limit)
	return p.show(list, func(w io.Writer) {
		line(w, "ID", "ENTRY", "BYTES", "PRIORITY", "ATTEMPTS", "EXCHANGE", "KEYS", "MESSAGE ID", "DEATHS", "PROBLEM")
		for _, m := range list {
			line(w, m.ID, m.Entry, m.Bytes, m.Priority, m.Attempts, m.Exchange, strings.Join(m.Keys, " "), m.MessageID, deaths(m.Deaths), m.Problem)
		}
	})
}

func deaths(list []Death) string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i] = fmt.Sprintf("%s in %s ×%d", d.Reason, d.Queue, d.Count)
	}
	return strings.Join(texts, ", ")
}

func (p *printer) outbox(f *Folder, queue uint64) error {
	s, err := f.State(queue)
	if err != nil {
		return err
	}
	list := s.OutboxItems(max(p.from, 1)-1, p.limit)
	return p.show(list, func(w io.Writer) {
		line(w, "ITEM", "STATE", "REASON", "DIED", "ENTRY", "BYTES", "KEYS", "TARGETS", "PROBLEM")
		for _, m := range list {
			legs := make([]string, len(m.Legs))
			for i, l := range m.Legs {
				legs[i] = fmt.Sprintf("%d (number %d)", l.Queue, l.Number)
			}
			line(w, m.ID, m.State, m.Reason, m.Died.Format(time.RFC3339Nano), m.Entry, m.Bytes, strings.Join(m.Keys, " "), strings.Join(legs, ", "), m.Problem)
		}
	})
}
