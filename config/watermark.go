package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Watermark is how much memory a node may use before publishers are blocked: a
// part of what there is, or a number of bytes when Bytes is not zero.
type Watermark struct {
	Fraction float64 // 0..1 of the machine's memory, or of the control group's limit
	Bytes    uint64
}

// units of sizes; the longer endings come first.
var units = []struct {
	ending string
	bytes  uint64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// percentMax is the largest number that may be meant as one of percent.
const percentMax = 100

// ParseWatermark reads "0.6", "1500000000", "512MiB" or "2 GB". A number up to 1
// without a unit is a fraction, and one up to 100 is refused: a node that may use 60 bytes, and not 60 %, blocks all publishers for ever.
func ParseWatermark(s string) (Watermark, error) {
	number, unit := strings.TrimSpace(s), uint64(0)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.ending); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	bad := fmt.Errorf("must be a fraction such as 0.6 or a size such as 512MiB, got %q", s)
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0) || strings.ContainsAny(number, "xXpP_+") {
		return Watermark{}, bad
	}
	if unit == 0 {
		if f <= 1 {
			return Watermark{Fraction: f}, nil
		}
		if f <= percentMax {
			return Watermark{}, fmt.Errorf("must be a fraction such as 0.6 or a size such as 512MiB: %q without a unit is neither", s)
		}
		unit = 1
	}
	n := f * float64(unit)
	if n < 1 || n > 1<<62 {
		return Watermark{}, bad
	}
	return Watermark{Bytes: uint64(n)}, nil
}

// Of returns the watermark in bytes where there are total bytes.
func (w Watermark) Of(total uint64) uint64 {
	if w.Bytes > 0 {
		return w.Bytes
	}
	return uint64(w.Fraction * float64(total))
}

// String returns the form that ParseWatermark reads.
func (w Watermark) String() string {
	if w.Bytes > 0 {
		return sizeOf(w.Bytes)
	}
	return strconv.FormatFloat(w.Fraction, 'g', -1, 64)
}

// parseSize reads a number of bytes such as "50MiB" or "0".
func parseSize(s string) (uint64, error) {
	w, err := ParseWatermark(s)
	switch {
	case err == nil && w.Bytes > 0:
		return w.Bytes, nil
	case err == nil && w.Fraction == 0:
		return 0, nil
	}
	return 0, fmt.Errorf("must be a size such as 50MiB, or 0, got %q", s)
}

// sizeOf is the shortest form of a size in units of 1,024 that parseSize reads. Without a unit 1 would be a fraction.
func sizeOf(n uint64) string {
	for _, u := range []string{"TiB", "GiB", "MiB", "KiB", "B"} {
		for _, known := range units {
			if known.ending == u && n > 0 && n%known.bytes == 0 {
				return strconv.FormatUint(n/known.bytes, 10) + u
			}
		}
	}
	return "0"
}
