package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// endWithParent makes the kernel end a node when the test that started it dies
// without cleaning up.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// ProcessCPU returns the user and system time of the process pid.
func ProcessCPU(pid int) (time.Duration, error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	// Fields 14 and 15 of stat, counted from the third, which follows the name.
	user, err1 := strconv.ParseInt(string(fields[11]), 10, 64)
	system, err2 := strconv.ParseInt(string(fields[12]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("times of process %d: %w", pid, err)
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}

// ProcessRSS returns the resident memory of the process pid in bytes.
func ProcessRSS(pid int) (int64, error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(string(fields[21]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// statFields returns the fields of /proc/PID/stat that follow the command's
// name, which may hold blanks itself.
func statFields(pid int) ([][]byte, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(data, ')')
	fields := bytes.Fields(data[end+1:])
	if end < 0 || len(fields) < 22 {
		return nil, fmt.Errorf("unexpected content of /proc/%d/stat", pid)
	}
	return fields, nil
}

// ProcessWritten returns how many bytes the process pid has had written to disk.
func ProcessWritten(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		if n, ok := bytes.CutPrefix(line, []byte("write_bytes: ")); ok {
			return strconv.ParseInt(string(bytes.TrimSpace(n)), 10, 64)
		}
	}
	return 0, fmt.Errorf("unexpected content of /proc/%d/io", pid)
}
