//go:build failpoints

package failpoint

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestArming(t *testing.T) {
	defer Disarm()
	if err := armAll(" move.routed:17=hold@3; move.taken=count ;"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		Pass(MoveTaken, 5)
	}
	Pass(MoveRouted, 16)
	Pass(MoveRouted, 17)
	got := State()
	if len(got) != 2 || got[0].Passes != 1 || got[0].Held || got[1].Passes != 4 {
		t.Errorf("got %+v", got)
	}
	for _, bad := range []string{"move.routed", "nowhere=kill", "move.routed=explode", "move.routed:x=kill", "move.routed=kill@0", "move.routed=kill@x"} {
		if err := armAll(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, released := range []bool{true, false} {
			if err := Arm(Trap{Point: MoveSent, Action: Hold, At: 2}); err != nil {
				t.Fatal(err)
			}
			Pass(MoveSent, 1)
			passed := make(chan struct{})
			begun := time.Now()
			go func() {
				Pass(MoveSent, 1)
				close(passed)
			}()
			synctest.Wait()
			if !State()[0].Held {
				t.Error("not held")
			}
			if released {
				Disarm()
			}
			<-passed
			if took := time.Since(begun); released && took > 0 || !released && took != holdMax {
				t.Errorf("released %v, held for %v", released, took)
			}
			Disarm()
		}
	})
}

func TestHandler(t *testing.T) {
	defer Disarm()
	for query, code := range map[string]int{
		"?point=move.sent&queue=3&action=count&at=1": http.StatusOK,
		"?point=move.sent&queue=3&action=count":      http.StatusBadRequest,
		"?point=move.sent&action=count&at=1":         http.StatusBadRequest,
		"?point=none&queue=3&action=count&at=1":      http.StatusBadRequest,
	} {
		w := httptest.NewRecorder()
		Handler(w, httptest.NewRequest(http.MethodPost, Path+query, nil))
		if w.Code != code {
			t.Errorf("%s: got %d", query, w.Code)
		}
	}
	if got := State(); len(got) != 1 || got[0].Queue != 3 {
		t.Errorf("armed: %+v", got)
	}
	Handler(httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, Path, nil))
	if got := State(); len(got) != 0 {
		t.Errorf("armed: %+v", got)
	}
}

// TestCutLink: nothing gets through a cut link and nothing of it is lost when it heals;
// a close is not heard before.
func TestCutLink(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr := ln.Addr().String()
	c, err := Dialer()(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	Cut(addr)
	Cut(addr)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dialer()(short, addr); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dialled over a cut link: %v", err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte("x"))
		written <- err
	}()
	b := make([]byte, 8)
	far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := far.Read(b); err == nil {
		t.Errorf("%d bytes came over a cut link", n)
	}
	Heal(addr)
	if err := <-written; err != nil {
		t.Error(err)
	}
	far.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := far.Read(b); err != nil || n != 1 {
		t.Errorf("after the heal: %d bytes, %v", n, err)
	}
	Cut(addr)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var late net.Error
	if _, err := far.Read(b); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("the far side of a cut link heard of the close: %v", err)
	}
	Heal(addr)
	far.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := far.Read(b); err == nil || errors.As(err, &late) && late.Timeout() {
		t.Errorf("the close was not heard after the heal: %v", err)
	}
}
