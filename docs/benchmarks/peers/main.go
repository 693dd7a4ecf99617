package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/warrenmq/warren/cmd/perf/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func execute(ctx context.Context, args []string) int {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	var err error
	switch verb {
	case "nats":
		return load.Execute(ctx, load.Drivers{"amqp": natsDriver{}}, args[1:], os.Stdout, os.Stderr)
	case "run":
		err = measure(ctx, args[1:])
	case "table":
		err = tabulate(args[1:])
	default:
		fmt.Fprintln(os.Stderr, "peers: the first argument is run, table or nats")
		return 2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		return 1
	}
	return 0
}
