//go:build failpoints

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/failpoint"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/faultfs"
)

// What the environment of a node with failpoints may say.
const (
	// envForget makes the disk forget at a kill what was not synced: the number is the percentage
	// of unsynced writes that it keeps.
	envForget = "WARREN_DISK_FORGET"
	// envSyncDelay is added to each sync of the disk until a test says otherwise, like "100ms".
	envSyncDelay = "WARREN_DISK_SYNC_DELAY"
	// envClock is added to the machine's clock, like "-90m".
	envClock = "WARREN_CLOCK_OFFSET"
)

// logKept leaves no log behind a snapshot, so that a replica that was away is filled by one.
const logKept = 1

// serveFailpoints lets tests on this machine arm failpoints, break the disk and take snapshots.
func (n *running) serveFailpoints(mux *http.ServeMux) {
	mux.HandleFunc(failpoint.Path, localOnly(failpoint.Handler))
	mux.HandleFunc("POST /debug/disk", localOnly(breakDisk))
	mux.HandleFunc("/debug/snapshots", localOnly(n.snapshots))
	mux.HandleFunc("GET /debug/state", localOnly(n.showState))
}

// showState tells what the replicas of this node hold, the catalog's first, as queue 0.
func (n *running) showState(w http.ResponseWriter, _ *http.Request) {
	if !n.ready.Load() {
		http.Error(w, errNotReady.Error(), http.StatusServiceUnavailable)
		return
	}
	cat := broker.ReplicaState{Name: "catalog"}
	cat.Applied, cat.State = n.catalog.Load().View().Digest()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(append([]broker.ReplicaState{cat}, n.broker.ReplicaStates()...)) // the client is gone otherwise
}

// faulty is the file system of this process's log store.
var faulty = newDisk()

func newDisk() *faultfs.FS {
	fs := faultfs.New(store.OSFS{}, forgetting())
	fs.Set(faultfs.Faults{SyncDelay: durationOf(envSyncDelay)})
	return fs
}

// disk is the file system of the log store.
func (n *running) disk() store.FS { return faulty }

// beforeCatalogWrite takes as long as the syncs of the log store, whose disk the catalog shares.
func (n *running) beforeCatalogWrite() func() {
	return func() { time.Sleep(faulty.Faults().SyncDelay) }
}

func forgetting() faultfs.Options {
	text := os.Getenv(envForget)
	if text == "" {
		return faultfs.Options{}
	}
	keep, err := strconv.Atoi(text)
	if err != nil || keep < 0 || keep > 100 {
		refuse(envForget, text, "is not a percentage")
	}
	return faultfs.Options{Forget: true, KeepPercent: keep}
}

// clockOffset is what is added to the machine's clock.
func clockOffset() time.Duration { return durationOf(envClock) }

func durationOf(variable string) time.Duration {
	text := os.Getenv(variable)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		refuse(variable, text, "is not a duration")
	}
	return d
}

func refuse(name, text, why string) {
	fmt.Fprintf(os.Stderr, "%s: %q %s\n", name, text, why)
	os.Exit(exitUsage)
}

// breakDisk sets what is wrong with the disk: ?full=true&failing=true&unreadable=true&sync-delay=50ms,
// each sound when it is not named.
func breakDisk(w http.ResponseWriter, r *http.Request) {
	var x faultfs.Faults
	var err error
	for name, values := range r.URL.Query() {
		switch name {
		case "full":
			x.Full, err = strconv.ParseBool(values[0])
		case "failing":
			x.Failing, err = strconv.ParseBool(values[0])
		case "unreadable":
			x.Unreadable, err = strconv.ParseBool(values[0])
		case "sync-delay":
			x.SyncDelay, err = time.ParseDuration(values[0])
		default:
			err = fmt.Errorf("%q is none of full, failing, unreadable, sync-delay", name)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	faulty.Set(x)
	w.WriteHeader(http.StatusNoContent)
}
