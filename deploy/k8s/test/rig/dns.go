package rig

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
)

// dnsServer answers A questions for Services as Kubernetes' DNS specification says: a Service's address, or for a headless
// one those of its pods (also of pods that are not ready, if it says so), and NAME.SERVICE for a pod with that host name.
type dnsServer struct {
	log      *slog.Logger
	conn     net.PacketConn
	stop     chan struct{}
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

const (
	dnsZone = ".svc.cluster.local."
	dnsTTL  = 5 // seconds
)

func serveDNS(client kubernetes.Interface, addr string, log *slog.Logger) (*dnsServer, error) {
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	s := &dnsServer{
		log: log, conn: conn, stop: make(chan struct{}),
		services: factory.Core().V1().Services().Lister(), slices: factory.Discovery().V1().EndpointSlices().Lister(),
	}
	factory.Core().V1().Services().Informer()
	factory.Discovery().V1().EndpointSlices().Informer()
	factory.Start(s.stop)
	factory.WaitForCacheSync(s.stop)
	go s.serve()
	return s, nil
}

func (s *dnsServer) close() {
	close(s.stop)
	s.conn.Close()
}

func (s *dnsServer) serve() {
	packet := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(packet)
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.log.Error("dns", "err", err)
			}
			return
		}
		if answer, err := s.answer(packet[:n]); err == nil {
			s.conn.WriteTo(answer, from)
		}
	}
}

func (s *dnsServer) answer(question []byte) ([]byte, error) {
	var p dnsmessage.Parser
	head, err := p.Start(question)
	if err != nil {
		return nil, err
	}
	q, err := p.Question()
	if err != nil {
		return nil, err
	}
	addrs, known := s.lookup(strings.ToLower(q.Name.String()))
	head.Response, head.Authoritative, head.RecursionAvailable = true, true, true
	if !known {
		head.RCode = dnsmessage.RCodeNameError
	}
	b := dnsmessage.NewBuilder(nil, head)
	b.EnableCompression()
	if err := errors.Join(b.StartQuestions(), b.Question(q), b.StartAnswers()); err != nil {
		return nil, err
	}
	if q.Type == dnsmessage.TypeA {
		for _, a := range addrs {
			if err := b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: dnsTTL}, dnsmessage.AResource{A: a.As4()}); err != nil {
				return nil, err
			}
		}
	}
	return b.Finish()
}

// lookup returns the addresses of SERVICE.NAMESPACE or POD.SERVICE.NAMESPACE in the cluster's zone.
func (s *dnsServer) lookup(name string) (addrs []netip.Addr, known bool) {
	name, ok := strings.CutSuffix(name, dnsZone)
	if !ok {
		return nil, false
	}
	parts := strings.Split(name, ".")
	pod := ""
	if len(parts) == 3 {
		pod, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 {
		return nil, false
	}
	service, err := s.services.Services(parts[1]).Get(parts[0])
	if err != nil {
		return nil, false
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		a, err := netip.ParseAddr(service.Spec.ClusterIP)
		return []netip.Addr{a}, err == nil && pod == ""
	}
	list, err := s.slices.EndpointSlices(parts[1]).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: parts[0]}))
	if err != nil {
		return nil, false
	}
	for _, slice := range list {
		for _, e := range slice.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			if !ready && !service.Spec.PublishNotReadyAddresses || pod != "" && (e.Hostname == nil || *e.Hostname != pod) {
				continue
			}
			for _, text := range e.Addresses {
				if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
					addrs = append(addrs, a)
				}
			}
		}
	}
	return addrs, pod == "" || len(addrs) > 0
}
