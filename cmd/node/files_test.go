package main

import (
	"math"
	"testing"

	"github.com/warrenmq/warren/config"
)

// TestSharesOfFiles: clients may have what the protocols allow where there are files enough, and where there are few they leave some to the log.
func TestSharesOfFiles(t *testing.T) {
	most := fileShares{amqp: 10000, grpc: 10000, http: 4096, strangers: 256}
	for files, want := range map[uint64]fileShares{
		math.MaxUint64: most,
		1 << 20:        most,
		65536:          {10000, 8192, 2048, 256},
		1024:           {512, 128, 32, 32},
		256:            {128, 32, 16, 16},
		0:              {1, 1, 16, 16},
	} {
		got := sharesOf(files, most)
		if got != want {
			t.Errorf("of %d files: %+v, want %+v", files, got, want)
		}
		if sum := got.amqp + got.grpc + 5*got.http + got.strangers; files >= 1024 && uint64(sum) > files/6*5 {
			t.Errorf("of %d files clients may take %d", files, sum)
		}
	}
}

// TestDiskReserve: more may be kept free than the log needs, never less.
func TestDiskReserve(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	least := diskReserve(cfg)
	if least < 1 || least > 128<<20 {
		t.Errorf("by default %d bytes", least)
	}
	for limit, want := range map[config.Watermark]int64{{Bytes: 1}: least, {Bytes: 1 << 40}: 1 << 40} {
		cfg.DiskFreeLimit = limit
		if got := diskReserve(cfg); got != want {
			t.Errorf("%v: %d bytes, want %d", limit, got, want)
		}
	}
	cfg.DiskFreeLimit = config.Watermark{Fraction: 0.5}
	if got := diskReserve(cfg); got <= least {
		t.Errorf("half of the disk: %d bytes", got)
	}
}
