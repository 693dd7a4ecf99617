package load

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// result is the JSON line of a run.
type result struct {
	Time string `json:"time"`
	*settings
	DurationSeconds float64 `json:"duration_s"`

	ConfirmedPerSecond    float64 `json:"confirmed_per_s,omitempty"`
	ConsumedPerSecond     float64 `json:"consumed_per_s,omitempty"`
	DeadLetteredPerSecond float64 `json:"deadlettered_per_s,omitempty"`
	MovedPerSecond        float64 `json:"moved_per_s,omitempty"`
	PublishPerSecond      float64 `json:"publish_per_s,omitempty"`
	DrainPerSecond        float64 `json:"drain_per_s,omitempty"`

	DeclarePerSecond float64 `json:"declare_per_s,omitempty"`
	DeclareCPUMS     float64 `json:"declare_cpu_ms,omitempty"`
	DeletePerSecond  float64 `json:"delete_per_s,omitempty"`
	IdleCores        float64 `json:"idle_cores,omitempty"`
	StartMS          float64 `json:"start_ms,omitempty"`
	RestartReadyMS   float64 `json:"restart_ready_ms,omitempty"`
	RestartQueuesMS  float64 `json:"restart_queues_ms,omitempty"`

	ConfirmP50MS float64 `json:"confirm_p50_ms,omitempty"`
	ConfirmP99MS float64 `json:"confirm_p99_ms,omitempty"`
	ArrivalP50MS float64 `json:"arrival_p50_ms,omitempty"`
	ArrivalP99MS float64 `json:"arrival_p99_ms,omitempty"`
	ConfirmGapMS float64 `json:"confirm_gap_ms,omitempty"`
	ArrivalGapMS float64 `json:"arrival_gap_ms,omitempty"`

	// From the hit until each queue that the server led has confirmed a message, and the same before it.
	Orphans       int     `json:"orphans,omitempty"`
	QueueGapP50MS float64 `json:"queue_gap_p50_ms,omitempty"`
	QueueGapP99MS float64 `json:"queue_gap_p99_ms,omitempty"`
	QueueGapMaxMS float64 `json:"queue_gap_max_ms,omitempty"`
	CalmP99MS     float64 `json:"calm_p99_ms,omitempty"`
	// Processor time of the other servers from the hit until the last of these confirms.
	FailoverCPUMS float64 `json:"failover_cpu_ms,omitempty"`

	ServerCores         float64 `json:"server_cores,omitempty"`
	ServerCPUPerMillion float64 `json:"server_cpu_s_per_million,omitempty"`
	ClientCPUPerMillion float64 `json:"client_cpu_s_per_million,omitempty"`
	ServerMemoryMiB     float64 `json:"server_memory_mib,omitempty"`
	MemoryGrowthMiB     float64 `json:"memory_growth_mib,omitempty"`
	// The same at the last confirm of a backlog, before --settle.
	MemoryGrowthAtOnceMiB float64 `json:"memory_growth_at_once_mib,omitempty"`

	// What reading metrics costs, with --scrapes.
	Scrapes []scraped `json:"scrapes,omitempty"`

	// Bytes that each server had written to disk, in the mean, for each byte of bodies.
	WrittenPerByte float64 `json:"written_per_byte,omitempty"`

	Sent        int `json:"sent"`
	Confirmed   int `json:"confirmed"`
	Received    int `json:"received"`
	Lost        int `json:"lost"`
	Duplicates  int `json:"duplicates"`
	Redelivered int `json:"redelivered"`
	Refused     int `json:"refused"`
}

func (r *result) latencies(l *load) {
	r.ConfirmP50MS, r.ConfirmP99MS = millis(l.confirmLatency.quantile(0.5)), millis(l.confirmLatency.quantile(0.99))
	r.ArrivalP50MS, r.ArrivalP99MS = millis(l.arrivalLatency.quantile(0.5)), millis(l.arrivalLatency.quantile(0.99))
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Execute does the run that args describe, prints its JSON line to stdout, and returns the exit code: 0, 1 when
// the run failed, or lost or repeated messages, and 2 for args that mean nothing.
func Execute(ctx context.Context, drivers Drivers, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "warren-perf:", err)
		return 2
	}
	d := drivers[cfg.Protocol]
	if d == nil {
		fmt.Fprintf(stderr, "warren-perf: --protocol: there is no %q\n", cfg.Protocol)
		return 2
	}
	defer debug.SetGCPercent(debug.SetGCPercent(cfg.ClientGOGC))
	res, err := perform(ctx, d, cfg)
	if err != nil {
		fmt.Fprintln(stderr, "warren-perf:", err)
		return 1
	}
	line, err := json.Marshal(res)
	if err == nil {
		err = write(cfg, append(line, '\n'), stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "warren-perf:", err)
		return 1
	}
	if res.Lost > 0 || res.Duplicates > 0 {
		fmt.Fprintf(stderr, "warren-perf: %d messages lost, %d repeated\n", res.Lost, res.Duplicates)
		return 1
	}
	return 0
}

func write(cfg *settings, line []byte, stdout io.Writer) error {
	if cfg.out != "" {
		f, err := os.OpenFile(cfg.out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if _, err := f.Write(line); err != nil {
			return errors.Join(err, f.Close())
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	_, err := stdout.Write(line)
	return err
}

// perform starts what is to be started, runs the mode and sums up.
func perform(ctx context.Context, d Driver, cfg *settings) (res *result, err error) {
	srv, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	r := &run{ctx: ctx, servers: srv, load: newLoad(cfg, d)}
	defer r.load.close()
	r.result.settings = cfg
	r.result.Time = time.Now().UTC().Format(time.RFC3339)
	server, client := srv.usage(), self()
	if err := modes[cfg.Mode](r); err != nil {
		return nil, err
	}
	t := r.load.totals()
	if t.surprises > 0 {
		return nil, fmt.Errorf("%d deliveries of messages that nobody sent", t.surprises)
	}
	if t.confirmed == 0 && cfg.Mode != "start" {
		return nil, errors.New("not a single message was confirmed")
	}
	res = &r.result
	res.sum(cfg, t, srv.usage(), server)
	if r.unread {
		res.Lost = 0
	}
	if t.confirmed > 0 {
		res.ClientCPUPerMillion = (self() - client).Seconds() * 1e6 / float64(t.confirmed)
	}
	res.round()
	return res, nil
}

// sum takes over what is counted over the whole run.
func (r *result) sum(cfg *settings, t totals, now, before usage) {
	r.DurationSeconds = cfg.Duration.Seconds()
	r.Sent, r.Confirmed, r.Received, r.Lost = t.sent, t.confirmed, t.received, t.open
	r.Duplicates, r.Redelivered, r.Refused = t.duplicates, t.redelivered, t.refused
	r.ServerMemoryMiB = float64(now.rss) / (1 << 20)
	if cfg.Mode == "failover" || len(cfg.pids) == 0 || t.confirmed == 0 { // a killed process takes its figures with it
		return
	}
	r.ServerCPUPerMillion = (now.cpu - before.cpu).Seconds() * 1e6 / float64(t.confirmed)
	r.WrittenPerByte = float64(now.written-before.written) / float64(len(cfg.pids)) / float64(t.confirmed*cfg.Size)
}

// self is the processor time of this process.
func self() time.Duration {
	cpu, err := cluster.ProcessCPU(os.Getpid())
	if err != nil {
		return 0
	}
	return cpu
}

// round keeps three digits after the point, at most.
func (r *result) round() {
	for _, v := range []*float64{
		&r.ConfirmedPerSecond, &r.ConsumedPerSecond, &r.DeadLetteredPerSecond, &r.MovedPerSecond, &r.PublishPerSecond, &r.DrainPerSecond,
		&r.ServerCores, &r.ServerCPUPerMillion, &r.ClientCPUPerMillion, &r.ServerMemoryMiB, &r.MemoryGrowthMiB, &r.MemoryGrowthAtOnceMiB,
		&r.DeclarePerSecond, &r.DeclareCPUMS, &r.DeletePerSecond, &r.IdleCores, &r.WrittenPerByte,
	} {
		*v = math.Round(*v*1000) / 1000
	}
}
