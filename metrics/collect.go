package metrics

import (
	"slices"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/dlx"
)

// mode says which form of the figures is asked for.
type mode uint8

const (
	aggregated mode = iota
	perObject
	detailed
)

// endpoint is the mode's name in rabbitmq_identity_info. RabbitMQ's dashboards choose by it, so that what is scraped in two
// forms is not counted twice. What is detailed does not say who it is of: it is scraped beside another form.
func (m mode) endpoint() string {
	if m == perObject {
		return "per-object"
	}
	return "aggregated"
}

// request is what is asked for.
type request struct {
	cfg  *Config
	mode mode
	// families and vhosts choose what is detailed; no vhosts are all.
	families, vhosts []string
}

// form is how a metric is written in the answer, nil if it is not shown.
func (r *request) form(d *def) *form {
	switch {
	case r.mode == aggregated:
		return d.sum
	case r.mode == perObject:
		return d.object
	case d.family != "" && slices.Contains(r.families, d.family):
		return d.detailed
	}
	return nil
}

// collect reads everything that is asked for.
func (r *request) collect() []byte {
	s := &scrape{request: r, forms: make([]*form, len(defs)), samples: make([][]byte, len(defs))}
	for i, d := range defs {
		s.forms[i] = r.form(d)
	}
	var figures []broker.QueueFigures
	if s.wants(queueMessages, queueBytes, queueConsumers, outboxMessages) {
		figures = r.cfg.Broker.Figures()
	}
	if r.mode != detailed {
		s.identity(figures)
		s.life()
		s.cluster()
		s.secrets()
		s.shovels()
		s.log()
		s.leaders()
		s.repair()
		s.traffic()
		s.dead()
	}
	s.churn()
	s.resources()
	s.queues(figures)
	s.raft()
	s.connections()
	s.channels()
	s.used()
	s.topology()
	return s.text()
}

// scrape is one reading.
type scrape struct {
	*request
	forms   []*form // of defs
	samples [][]byte
}

func (s *scrape) form(d *def) *form { return s.forms[d.index] }

func (s *scrape) put(d *def, v float64, labels ...string) {
	if f := s.forms[d.index]; f != nil {
		s.samples[d.index] = f.append(s.samples[d.index], v, labels)
	}
}

func (s *scrape) count(d *def, n uint64, labels ...string) { s.put(d, float64(n), labels...) }

// times puts a histogram of classes by powers of two, of which class i ends at unit * 2^i.
func (s *scrape) times(d *def, classes []uint64, first int, unit, sum float64) {
	f := s.forms[d.index]
	if f == nil {
		return
	}
	out, total := s.samples[d.index], uint64(0)
	line := func(suffix string, v float64) {
		out = append(append(append(out, f.name...), suffix...), ' ')
		out = append(appendNumber(out, v), '\n')
	}
	for i, n := range classes {
		total += n
		if i >= first && i < len(classes)-1 {
			end := string(appendNumber(nil, unit*float64(uint64(1)<<i)))
			line(`_bucket{le="`+end+`"}`, float64(total))
		}
	}
	line(`_bucket{le="+Inf"}`, float64(total))
	line("_sum", sum)
	line("_count", float64(total))
	s.samples[d.index] = out
}

func (s *scrape) identity(figures []broker.QueueFigures) {
	n, g := s.cfg.Node(), s.cfg.Gateway()
	s.put(identityInfo, 1, n.Name, n.Cluster, n.ClusterID, s.mode.endpoint())
	s.put(buildInfo, 1, n.Version, n.Product, n.Version)
	s.count(connections, uint64(max(0, g.Connections)))
	s.count(channels, g.ChannelsOpened-min(g.ChannelsOpened, g.ChannelsClosed))
	if s.cfg.GRPC != nil {
		rpc := s.cfg.GRPC()
		s.count(grpcConnections, uint64(max(0, rpc.Connections)))
		s.count(grpcStreams, uint64(max(0, rpc.Streams)))
		s.count(grpcConnectionsOpened, rpc.Accepted)
	}
	clients := s.cfg.Broker.Clients()
	s.count(consumers, uint64(clients.Consumers))
	s.count(globalConsumers, uint64(clients.Consumers), protocol)
	named := 0
	for i := range figures {
		if figures[i].DelayOf == "" {
			named++
		}
	}
	s.count(queues, uint64(named))
}

// churn puts what came and went.
func (s *scrape) churn() {
	if !s.wants(connectionsOpened) {
		return
	}
	g, churn := s.cfg.Gateway(), s.cfg.Broker.QueueChurn()
	s.count(connectionsOpened, g.Accepted)
	s.count(connectionsClosed, g.Closed)
	s.count(channelsOpened, g.ChannelsOpened)
	s.count(channelsClosed, g.ChannelsClosed)
	s.count(queuesDeclared, churn.Declared)
	s.count(queuesCreated, churn.Created)
	s.count(queuesDeleted, churn.Deleted)
}

// resources puts what the process uses and may use.
func (s *scrape) resources() {
	if !s.wants(residentBytes, residentLimit) {
		return
	}
	n, r, st := s.cfg.Node(), s.cfg.Resources(), s.cfg.Store()
	s.count(residentBytes, r.MemoryBytes)
	s.count(residentLimit, n.MemoryLimit)
	s.count(openFDs, r.OpenFiles)
	s.count(maxFDs, r.OpenFilesMax)
	s.count(diskFree, st.FreeBytes)
	s.count(diskLimit, n.DiskLimit)
	s.put(alarmMemory, truth(r.MemoryAlarm))
	s.put(alarmDisk, truth(r.DiskAlarm))
}

// life puts what the node is doing as a whole.
func (s *scrape) life() {
	if s.cfg.Life != nil {
		l := s.cfg.Life()
		for _, state := range l.States {
			s.put(nodeState, truth(state == l.State), state)
		}
		for _, step := range l.Unreadies {
			s.put(nodeUnready, truth(step == l.Unready), step)
		}
		for step, took := range l.Steps {
			s.put(drainTime, took.Seconds(), step)
		}
	}
	if s.cfg.Panics != nil {
		panics := s.cfg.Panics()
		for _, protocol := range []string{"amqp", "grpc", "http"} { // from the beginning: else the first one is no increase
			s.count(panicsContained, panics[protocol], protocol)
		}
	}
	if s.cfg.Spans != nil {
		if x := s.cfg.Spans(); x.On {
			s.count(traceSpans, x.Ended, "ended")
			s.count(traceSpans, x.Exported, "exported")
			s.count(traceSpans, x.Failed, "failed")
		}
	}
}

// log puts the figures of the log store.
func (s *scrape) log() {
	st := s.cfg.Store()
	s.times(storeSyncTime, st.SyncTimes.Classes[:], firstSyncClass, 1e-6, st.SyncTimes.Sum.Seconds())
	s.count(storeWritten, st.WrittenBytes)
	s.count(storeSegments, uint64(st.Segments))
	s.count(storeBytes, uint64(max(0, st.SegmentBytes)))
	s.count(storeSpare, uint64(max(0, st.SpareBytes)))
	s.count(storeZeroed, st.Prepared.ZeroedBytes)
	s.count(storePrepared, st.Prepared.Recycled, "recycled")
	s.count(storePrepared, st.Prepared.Reserved, "reserved")
	s.count(storePrepared, st.Prepared.Zeroed, "zeroed")
	s.count(storeLiveBytes, uint64(max(0, st.LiveBytes)))
	s.count(storeCached, uint64(max(0, st.CacheBytes)))
	s.count(replicasDamaged, uint64(max(0, st.Quarantined)))
	s.count(replicasHurt, st.Damaged)
}

func (s *scrape) leaders() {
	l := s.cfg.Leaders()
	s.count(leadersSought, uint64(max(0, l.Searching)))
	s.count(majorityMissing, uint64(max(0, l.WithoutMajority)))
	s.count(queuesClosing, uint64(max(0, l.Closing)))
	s.count(leadersAway, uint64(max(0, l.Away)))
	s.count(replicasAsleep, uint64(max(0, l.Asleep)))
	s.count(quorumCritical, uint64(max(0, l.Critical)))
	s.count(replicasMissing, uint64(max(0, l.Missing)))
	if l.Behind >= 0 {
		s.count(replicasBehind, uint64(l.Behind))
	}
	s.count(elections, l.Elections)
	s.count(leadersFled, l.Fled)
	s.count(leadersMoved, l.Returned, "moved")
	s.count(leadersMoved, l.NotGiven, "failed")
	s.times(leaderSearch, l.Searches, 0, 1e-3, l.SearchesMS/1e3)
}

func (s *scrape) repair() {
	if s.cfg.Repair == nil {
		return
	}
	r := s.cfg.Repair()
	for reason, n := range r.Plans {
		s.count(repairPlans, n, reason)
	}
	for state, n := range r.Queues {
		s.count(repairQueues, uint64(max(0, n)), state)
	}
	s.count(repairRefused, r.Refused)
	s.count(fillBytes, r.FillBytes)
	s.put(fillWait, r.FillWait.Seconds())
}

// firstSyncClass begins the classes of syncs that are shown: at 64 µs.
const firstSyncClass = 6

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// protocol is the value of RabbitMQ's label for AMQP 0-9-1.
const protocol = "amqp091"

// total counts what is shown for each channel in its place where single objects are asked for.
func (s *scrape) total(d *def, n uint64) {
	if s.mode == aggregated {
		s.count(d, n)
	}
}

func (s *scrape) traffic() {
	t := s.cfg.Broker.Traffic()
	for _, x := range []struct {
		global, channel *def
		n               uint64
	}{
		{globalReceived, channelPublished, t.Received},
		{globalReceivedConfirm, nil, t.ReceivedConfirm},
		{globalRouted, nil, t.Routed},
		{globalConfirmed, channelConfirmed, t.Confirmed},
		{globalDropped, channelDropped, t.UnroutableDropped},
		{globalReturned, channelReturned, t.UnroutableReturned},
	} {
		s.count(x.global, x.n, protocol)
		if x.channel != nil {
			s.total(x.channel, x.n)
		}
	}
	var all broker.TypeTraffic
	for i, x := range t.ByType {
		labels := []string{protocol, broker.QueueType(i).String()}
		s.count(globalDelivered, x.DeliveredManual+x.DeliveredAuto+x.GotManual+x.GotAuto, labels...)
		s.count(globalManual, x.DeliveredManual, labels...)
		s.count(globalAuto, x.DeliveredAuto, labels...)
		s.count(globalGetManual, x.GotManual, labels...)
		s.count(globalGetAuto, x.GotAuto, labels...)
		s.count(globalGetEmpty, x.GetEmpty, labels...)
		s.count(globalRedelivered, x.Redelivered, labels...)
		s.count(globalAcked, x.Acked, labels...)
		all.DeliveredManual += x.DeliveredManual
		all.DeliveredAuto += x.DeliveredAuto
		all.GotManual += x.GotManual
		all.GotAuto += x.GotAuto
		all.GetEmpty += x.GetEmpty
		all.Redelivered += x.Redelivered
		all.Acked += x.Acked
	}
	s.total(channelDelivered, all.DeliveredAuto)
	s.total(channelDeliveredM, all.DeliveredManual)
	s.total(channelRedelivered, all.Redelivered)
	s.total(channelAcked, all.Acked)
	s.total(channelGet, all.GotAuto)
	s.total(channelGetAck, all.GotManual)
	s.total(channelGetEmpty, all.GetEmpty)
}

func (s *scrape) dead() {
	t := s.cfg.Broker.DeadTotals()
	reasons := map[dlx.Reason]*def{dlx.Rejected: deadRejected, dlx.Expired: deadExpired, dlx.MaxLen: deadMaxLen, dlx.DeliveryLimit: deadDelivery, dlx.QueueRemoved: deadRemoved}
	for i := range t.Died {
		for j := range t.Died[i] {
			labels := []string{broker.QueueType(i).String(), broker.Strategy(j).String()}
			for reason, d := range reasons {
				s.count(d, t.Died[i][j][reason], labels...)
			}
			s.count(deadConfirmed, t.Confirmed[i][j], labels...)
		}
	}
	for _, cause := range broker.DropCauses() {
		s.count(deadDropped, t.Dropped[cause], cause.String())
	}
	s.times(deadMoveTime, t.Waited[:], 0, 1e-3, float64(t.WaitedMillis)/1e3)
	s.count(deadForwarded, t.Forwarded)
	s.count(deadRedriven, t.Redriven)
	m := s.cfg.Broker.MoveTotals()
	s.count(transfersSent, m.Sent)
	s.count(transfersFull, m.Full)
	s.count(transfersLost, m.Unanswered)
	l := s.cfg.Broker.Lives()
	s.count(queuesRecovered, l.Recovered)
	s.count(publishesResent, l.Resent)
	s.count(lettersResent, l.Again)
	s.count(lettersLost, l.Lost)
}
