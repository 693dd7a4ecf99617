package config

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// ConnectionMaxInfinity is the ConnectionMax that bounds nothing.
const ConnectionMaxInfinity = math.MaxInt

// Words that stand for a limit that is not a number.
const (
	infinity = "infinity" // RabbitMQ's
	auto     = "auto"
)

// Bounds of the limits of clients.
const (
	connectionMaxMax  = 10_000_000
	channelMaxMax     = math.MaxUint16
	heartbeatMax      = math.MaxUint16 * time.Second
	maxMessageSizeMax = 128 << 20 // an entry of the log has to fit into a message between nodes
)

func setConnectionMax(c *Config, s string) error {
	if s == infinity {
		c.ConnectionMax = ConnectionMaxInfinity
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n == ConnectionMaxInfinity {
		return fmt.Errorf("must be a whole number or infinity, got %q", s)
	}
	c.ConnectionMax = n
	return nil
}

func connectionMaxText(n int) string {
	if n == ConnectionMaxInfinity {
		return infinity
	}
	return strconv.Itoa(n)
}

func setDiskFreeLimit(c *Config, s string) (err error) {
	c.DiskFreeLimit = Watermark{}
	if s != auto {
		c.DiskFreeLimit, err = ParseWatermark(s)
	}
	return err
}

func diskFreeLimitText(w Watermark) string {
	if w == (Watermark{}) {
		return auto
	}
	return w.String()
}

// limitProblems are those of what clients may take.
func (c Config) limitProblems(p *Problems) {
	if c.DiskFreeLimit.Bytes == 0 && c.DiskFreeLimit.Fraction == 1 {
		p.add("disk-free-limit", "a disk is never free as a whole: must be below 1")
	}
	if _, err := c.Proxies(); err != nil {
		p.add("proxy-protocol", err.Error())
	}
	if c.ConnectionMax != ConnectionMaxInfinity {
		p.add("connection-max", orElse(infinity, between(c.ConnectionMax, 0, connectionMaxMax)))
	}
	p.add("channel-max", between(c.ChannelMax, 1, channelMaxMax))
	if problem := between(c.Heartbeat, 0, heartbeatMax); problem != "" {
		p.add("heartbeat", problem)
	} else if c.Heartbeat%time.Second != 0 {
		p.add("heartbeat", fmt.Sprintf("must be whole seconds, got %s", c.Heartbeat))
	}
	if c.MaxMessageSize < 1 || c.MaxMessageSize > maxMessageSizeMax {
		p.add("max-message-size", fmt.Sprintf("must be between 1B and %s, got %s", sizeOf(uint64(maxMessageSizeMax)), sizeOf(c.MaxMessageSize)))
	}
}
