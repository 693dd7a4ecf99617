package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/warrenmq/warren/test/frames"
)

// quiet is after how long without an answer a broker is taken to give none.
const quiet = 400 * time.Millisecond

// talk carries out a case and returns what came back.
func talk(c *frames.Case, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	conn, err := net.DialTimeout("tcp", u.Host, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	w := &wire{conn: conn, r: bufio.NewReader(conn)}
	t := c.Tune
	if t == (frames.Tune{}) {
		t = frames.Usual
	}
	name := u.User.Username()
	w.say([]byte("AMQP\x00\x00\x09\x01"))
	w.hear(1, 5*time.Second)
	w.told = nil
	if !c.StartOK {
		w.say(frames.Method(0, 10, 11, []byte{}, "PLAIN", []byte("\x00"+name+"\x00"+name), "en_US"))
		w.hear(1, 5*time.Second)
		w.told = nil
		w.say(frames.Method(0, 10, 31, t.Channels, t.Frame, t.Heartbeat))
	}
	if !c.Early {
		w.say(frames.Method(0, 10, 40, "/", "", byte(0)))
		w.say(frames.Method(1, 20, 10, ""))
		w.hear(2, 5*time.Second)
		w.told = nil
	}
	for _, data := range c.Send {
		w.say(data)
	}
	patience := c.Patience
	if patience == 0 {
		patience = quiet
	}
	for w.hear(1, patience) {
		if w.closing {
			w.closing = false
			w.say(frames.Method(0, 10, 51))
		}
	}
	return strings.Join(w.told, "; "), nil
}

// wire is a connection of a case.
type wire struct {
	conn    net.Conn
	r       *bufio.Reader
	told    []string
	closing bool // the broker has said connection.close
}

// say sends something. That it fails is seen when nothing more is heard.
func (w *wire) say(data []byte) {
	_ = w.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_, _ = w.conn.Write(data)
}

// hear reads a number of frames other than heartbeats. It is false at the end, or when nothing has come for so long.
func (w *wire) hear(frames int, patience time.Duration) bool {
	end := time.Now().Add(patience)
	for n := 0; n < frames; {
		_ = w.conn.SetReadDeadline(end)
		text, err := w.next()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.told = append(w.told, "open")
			return false
		case err != nil:
			w.told = append(w.told, "the end")
			return false
		case text != "":
			w.told = append(w.told, text)
			n++
		}
	}
	return true
}

// next reads a frame and says what it is, nothing for a heartbeat.
func (w *wire) next() (string, error) {
	kind, channel, payload, err := frames.Read(w.r)
	switch {
	case errors.Is(err, frames.ErrProtocol):
		return "AMQP header", nil
	case err != nil:
		return "", err
	case kind == frames.TypeHeartbeat:
		return "", nil
	case kind != frames.TypeMethod:
		return fmt.Sprintf("frame %d of %d bytes on %d", kind, len(payload), channel), nil
	}
	class, id, args := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]), payload[4:]
	text := fmt.Sprintf("%d.%d on %d", class, id, channel)
	if class == 10 && id == 50 || class == 20 && id == 40 {
		end := 3 + int(args[2])
		code, rest := binary.BigEndian.Uint16(args), args[end:]
		text += fmt.Sprintf(": %d %s, for %d.%d", code, args[3:end], binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:]))
		w.closing = class == 10
	}
	return text, nil
}

// Texts are the brokers' own, and how soon one hangs up behind the last word.
var (
	closeText = regexp.MustCompile(`(?s): ([0-9]+) .*?, for ([0-9]+\.[0-9]+)`)
	lastWord  = regexp.MustCompile(`(10\.5[01] on 0.*); (open|the end)$`)
)

func withoutTexts(told string) string {
	return lastWord.ReplaceAllString(closeText.ReplaceAllString(told, ": $1 for $2"), "$1")
}

// compareWire carries out all cases and prints those that differ and are not documented, or with all set each.
func compareWire(p pair, all bool) (differ bool, err error) {
	cases := frames.Wrong()
	for i := range cases {
		c := &cases[i]
		var told [2]string
		for k := range p {
			if told[k], err = talk(c, p[k].urls[0]); err != nil {
				return true, fmt.Errorf("%s, %s: %w", c.Name, p[k].name, err)
			}
		}
		unlike := !c.Documented && withoutTexts(told[0]) != withoutTexts(told[1])
		differ = differ || unlike
		if all || unlike {
			fmt.Printf("%s\n  %-8s %s\n  %-8s %s\n", c.Name, p[0].name, told[0], p[1].name, told[1])
		}
	}
	return differ, nil
}
