package leader

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// gatedLog keeps proposals back while it is shut.
type gatedLog struct {
	Log
	mu   sync.Mutex
	shut bool
	kept []func()
}

func (g *gatedLog) Propose(data []byte, done func(error)) {
	data = slices.Clone(data)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		g.kept = append(g.kept, func() { g.Log.Propose(data, done) })
		return
	}
	g.Log.Propose(data, done)
}

func (g *gatedLog) setShut(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	if !shut {
		for _, propose := range g.kept {
			propose()
		}
		g.kept = nil
	}
}

func (g *gatedLog) keeps() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.kept)
}

// catalogSettings are what the catalog says, as a test changes it.
type catalogSettings struct {
	mu       sync.Mutex
	set      queue.Settings
	revision uint64
}

func (c *catalogSettings) put(maxLength int64, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = plain()
	c.set.MaxLength, c.revision = maxLength, revision
}

func (c *catalogSettings) get() (queue.Settings, uint64, string, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set, c.revision, "/", "q"
}

func newSettingsRig(t *testing.T) (r *rig, gate *gatedLog, c *catalogSettings) {
	c, gate = &catalogSettings{}, &gatedLog{}
	c.put(-1, 1)
	r = newRigWith(t, plain(), func(cfg *Config) {
		gate.Log = cfg.Log
		cfg.Log, cfg.Settings = gate, c.get
	}, node(1))
	r.answerRoll(node(1))
	r.publish(node(1), "one", "two")
	return r, gate, c
}

func (r *rig) settings() (set queue.Settings, revision, index uint64) {
	r.replica.View(func(m *fsm.Machine) { set, revision, index = m.Settings(), m.SettingsRevision(), m.Index() })
	return set, revision, index
}

// Settings that the catalog took back while they were under way do not stay.
func TestSettingsTakenBackMeanwhile(t *testing.T) {
	r, gate, c := newSettingsRig(t)
	gate.setShut(true)
	c.put(1, 5)
	r.l.CatalogChanged()
	eventually(t, "the proposal", func() bool { return gate.keeps() > 0 })
	if !r.l.SettingsPending() {
		t.Error("settings are in effect that no log has")
	}
	c.put(-1, 6)
	r.l.CatalogChanged()
	r.l.Describe() // it has seen that
	gate.setShut(false)
	eventually(t, "the settings before", func() bool {
		set, revision, _ := r.settings()
		return set.MaxLength == -1 && revision == 6
	})
	if r.l.SettingsPending() {
		t.Error("settings are under way for nothing")
	}
}

// The next leader finds what an earlier one's last entry made of the settings.
func TestNextLeaderTakesSettingsBack(t *testing.T) {
	r, gate, c := newSettingsRig(t)
	gate.setShut(true)
	c.put(1, 5)
	r.l.CatalogChanged()
	eventually(t, "the proposal", func() bool { return gate.keeps() > 0 })
	c.put(-1, 6)
	r.lead()
	eventually(t, "its first entry, behind the one that is kept", func() bool { return gate.keeps() == 2 })
	gate.setShut(false)
	eventually(t, "the settings before", func() bool {
		set, revision, _ := r.settings()
		return set.MaxLength == -1 && (revision == 1 || revision == 6) && !r.l.SettingsPending()
	})
	r.answerRoll(node(1))
	if n := r.status(node(1), 9).Ready; n > 2 {
		t.Errorf("%d messages", n)
	}
}

// A revision that changes nothing costs no entry; one that lowers the length drops at once.
func TestSettingsOnlyIfTheyDiffer(t *testing.T) {
	r, _, c := newSettingsRig(t)
	r.l.Describe()
	_, _, before := r.settings()
	c.put(-1, 7)
	r.l.CatalogChanged()
	r.l.Describe()
	time.Sleep(20 * time.Millisecond)
	if _, revision, index := r.settings(); index != before || revision != 1 {
		t.Errorf("index %d after %d, revision %d", index, before, revision)
	}
	c.put(1, 8)
	r.l.CatalogChanged()
	eventually(t, "the first to go", func() bool {
		var n int
		r.replica.View(func(m *fsm.Machine) { n = m.Queue().Len() })
		return n == 1
	})
	if _, revision, _ := r.settings(); revision != 8 {
		t.Errorf("revision %d", revision)
	}
}
