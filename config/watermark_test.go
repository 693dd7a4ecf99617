package config

import "testing"

func TestWatermark(t *testing.T) {
	for s, want := range map[string]uint64{ // of 1000 bytes
		"0.6": 600, "0": 0, "1": 1000, "1.0": 1000, " 0.25 ": 250,
		"101": 101, "1500000000": 1500000000, "1B": 1, "512MiB": 512 << 20, "2 GB": 2e9, "1.5kB": 1500, "1KB": 1000, "1KiB": 1024,
	} {
		w, err := ParseWatermark(s)
		if err != nil || w.Of(1000) != want {
			t.Errorf("%q: %d, %v, want %d", s, w.Of(1000), err, want)
		}
		if again, err := ParseWatermark(w.String()); err != nil || again != w {
			t.Errorf("%q prints as %q: %+v, %v", s, w, again, err)
		}
	}
	if got := (Watermark{Bytes: 256 << 20}).String(); got != "256MiB" {
		t.Errorf("256 MiB print as %q", got)
	}
	for _, s := range []string{"", "much", "-1", "NaN", "Inf", "1e300", "0.1B", "5 XB", "0x10", "60%", "1_0", "+1", "2", "60", "100"} {
		if w, err := ParseWatermark(s); err == nil {
			t.Errorf("%q was read as %v", s, w)
		}
	}
}

func FuzzParseWatermark(f *testing.F) {
	f.Add("0.6")
	f.Add("512MiB")
	f.Fuzz(func(t *testing.T, s string) {
		w, err := ParseWatermark(s)
		if again, err2 := ParseWatermark(w.String()); err == nil && (err2 != nil || again != w) {
			t.Fatalf("%q: %v became %v, %v", s, w, again, err2)
		}
	})
}

func TestSize(t *testing.T) {
	for s, want := range map[string]uint64{"0": 0, "50MiB": 50 << 20, "1.5MiB": 3 << 19, "1000000": 1e6, "3GiB": 3 << 30, "2 kB": 2000} {
		n, err := parseSize(s)
		if err != nil || n != want {
			t.Errorf("%q: %d, %v, want %d", s, n, err, want)
		}
		if again, err := parseSize(sizeOf(n)); err != nil || again != n {
			t.Errorf("%d prints as %q: %d, %v", n, sizeOf(n), again, err)
		}
	}
	if got := sizeOf(50 << 20); got != "50MiB" {
		t.Errorf("50 MiB print as %q", got)
	}
	for _, s := range []string{"", "0.5", "1", "-1MiB", "fast"} {
		if n, err := parseSize(s); err == nil {
			t.Errorf("%q was read as %d", s, n)
		}
	}
}
