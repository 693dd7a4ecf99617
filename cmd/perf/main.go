package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/warrenmq/warren/cmd/perf/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := load.Execute(ctx, load.Drivers{"amqp": amqpDriver{}, "grpc": grpcDriver{}}, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
