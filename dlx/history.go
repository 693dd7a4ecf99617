package dlx

import "github.com/warrenmq/warren/amqp"

// clientHistoryMax bounds what is taken of a history that a client sent.
const clientHistoryMax = 64

// clientHistory reads the x-death header of a message that a client has published: the
// reverse of what [Headers] renders. Entries that are none are passed over. The newest record is
// marked as redriven: a client decided to send the message again, and no cycle is told from
// what a client says. The text of a rejection is not taken over: it is of level 2, which is not known here.
func clientHistory(raw amqp.RawProperties) []Death {
	v, ok := raw.Header(headerDeaths)
	if !ok {
		return nil
	}
	list, _ := v.(amqp.Array)
	var deaths []Death
	for _, v := range list {
		t, ok := v.(amqp.Table)
		if !ok {
			continue
		}
		if d, ok := clientDeath(t); ok && !known(deaths, d) {
			deaths = append(deaths, d)
		}
		if len(deaths) == clientHistoryMax {
			break
		}
	}
	if len(deaths) > 0 {
		deaths[0].Redriven = true
	}
	return deaths
}

func known(deaths []Death, d Death) bool {
	for i := range deaths {
		if deaths[i].Queue == d.Queue && deaths[i].Reason == d.Reason {
			return true
		}
	}
	return false
}

func clientDeath(t amqp.Table) (d Death, ok bool) {
	field := func(name string) string {
		v, _ := t.Get(name)
		s, _ := v.(string)
		return s
	}
	for r := Rejected; r <= LastDeath; r++ {
		if r != Transaction && r.String() == field("reason") {
			d.Reason = r
		}
	}
	d.Queue, d.Exchange = field("queue"), field("exchange")
	v, _ := t.Get("count")
	count, _ := amqp.AsInt64(v)
	if d.Reason == 0 || d.Queue == "" || count < 1 {
		return d, false
	}
	d.Count = uint64(min(count, countMax))
	d.Before = d.Count
	if v, ok := t.Get("time"); ok {
		at, _ := v.(amqp.Timestamp)
		d.FirstMillis = int64(min(at, maxSeconds)) * 1000
		d.LastMillis = d.FirstMillis
	}
	if v, ok := t.Get("routing-keys"); ok {
		keys, _ := v.(amqp.Array)
		for _, k := range keys {
			if s, ok := k.(string); ok {
				d.RoutingKeys = append(d.RoutingKeys, s)
			}
		}
	}
	if v, ok := t.Get("original-expiration"); ok {
		d.OriginalExpiration, d.HasExpiration = v.(string)
	}
	return d, true
}

// countMax leaves room for counting on.
const countMax = 1 << 53

// maxSeconds is the year 9999, beyond which a time is nonsense.
const maxSeconds = amqp.Timestamp(253_402_300_799)
