package group

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// A leader that most of its group's voters do not hear is replaced as if it were dead, although most nodes of the cluster hear it. One that a majority of the
// voters hears leads on.
func TestLeaderThatItsVotersDoNotHear(t *testing.T) {
	for _, k := range []struct {
		name     string
		cut      []transport.NodeID // off from the leader n0
		replaced bool
	}{
		{"two of three", []transport.NodeID{"n1", "n2"}, true},
		{"one of three", []transport.NodeID{"n1", "n3"}, false},
	} {
		t.Run(k.name, func(t *testing.T) {
			bubble(t, 5, nil, func(t *testing.T, c *memCluster) {
				for _, id := range c.ids[:3] {
					c.nodes[id].start(t, Spec{ID: queueA, Members: c.ids[:3], Preferred: "n0", Bootstrap: true})
				}
				if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second) // everybody knows everybody
				c.net.change(func() {
					for _, id := range k.cut {
						c.net.cut[pair("n0", id)] = true
					}
				})
				if k.replaced {
					if _, err := propose(c.waitLeader(queueA, 4*time.Second, "n0"), "b"); err != nil {
						t.Fatal(err)
					}
				} else {
					time.Sleep(10 * time.Second)
					if _, err := propose(c.waitLeader(queueA, 0), "b"); err != nil {
						t.Fatal(err)
					}
				}
				c.net.change(func() { clear(c.net.cut) })
				time.Sleep(30 * time.Second)
				leader := c.waitLeader(queueA, 0)
				if replaced := leader.host.cfg.Local != "n0"; replaced != k.replaced {
					t.Errorf("%s leads", leader.host.cfg.Local)
				}
				for _, id := range c.ids[:3] {
					g, _ := c.nodes[id].host.Group(queueA)
					if l, _, _ := g.Leader(); l != leader.host.cfg.Local {
						t.Errorf("%s follows %q, and %s leads", id, l, leader.host.cfg.Local)
					}
				}
			})
		})
	}
}

// Two of four nodes die at once, and nobody can find them dead: a group with two of three voters on the others goes on.
func TestVotersGoOnWithoutAMajorityOfTheNodes(t *testing.T) {
	bubble(t, 4, nil, func(t *testing.T, c *memCluster) {
		for _, id := range c.ids[:3] {
			c.nodes[id].start(t, Spec{ID: queueA, Members: c.ids[:3], Preferred: "n0", Bootstrap: true})
		}
		if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // everybody knows everybody
		c.net.change(func() { c.nodes["n0"].link.down, c.nodes["n3"].link.down = true, true })
		if _, err := propose(c.waitLeader(queueA, 4*time.Second, "n0"), "b"); err != nil {
			t.Fatal(err)
		}
		c.kill("n0")
		c.kill("n3")
		c.agree(queueA, []string{"a", "b"})
	})
}
