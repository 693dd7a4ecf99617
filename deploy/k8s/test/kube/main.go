// Kube is the five programs of Kubernetes in one binary: the first argument says which of them this process is.
// They are built from their modules as anybody builds them; what differs from a distribution is only that they share a file.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	_ "k8s.io/component-base/logs/json/register"            // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo"   // metrics of requests
	_ "k8s.io/component-base/metrics/prometheus/restclient" // and of their rates
	_ "k8s.io/component-base/metrics/prometheus/version"    // build information
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              proxy.NewProxyCommand,
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		names := make([]string, 0, len(programs))
		for name := range programs {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: kube %s ...\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Args = os.Args[1:] // the programs look at their own name
	os.Exit(cli.Run(programs[os.Args[0]]()))
}
