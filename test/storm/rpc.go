package storm

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// login are a call's credentials.
type login struct{ user, password string }

func (l login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.password))}, nil
}

func (login) RequireTransportSecurity() bool { return false }

// dialRPC connects to the gRPC API of an address, or will when it is called.
func dialRPC(addr string, l login, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(l))...)
}

// calls are all methods of the API, those with streams more than once: they have more states.
var calls = func() (list []protoreflect.MethodDescriptor) {
	for _, file := range []protoreflect.FileDescriptor{
		warrenv1.File_warren_v1_admin_proto, warrenv1.File_warren_v1_consume_proto, warrenv1.File_warren_v1_messages_proto,
		warrenv1.File_warren_v1_publish_proto, warrenv1.File_warren_v1_status_proto, warrenv1.File_warren_v1_topology_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m, n := methods.Get(j), 1
				if m.IsStreamingServer() {
					n = 8
				}
				for range n {
					list = append(list, m)
				}
			}
		}
	}
	return list
}()

// caller is one connection to the gRPC API.
type caller struct {
	d     dice
	w     *world
	trace *trace
	conn  *grpc.ClientConn
	name  string // of the method that is called
}

// call is a gRPC client: connection after connection, until ctx ends.
func (w *world) call(ctx context.Context, number int) {
	d := newDice(w.cfg.Seed, uint64(2000+number))
	t := w.trace(fmt.Sprintf("grpc%02d", number))
	for ctx.Err() == nil {
		n, user := w.node(d), d.user()
		options := []grpc.DialOption{}
		if d.chance(.3) {
			options = append(options, grpc.WithInitialWindowSize(65536), grpc.WithInitialConnWindowSize(65536))
		}
		conn, err := dialRPC(n.GRPCAddr(), login{user, d.passwordOf(user)}, options...)
		if err != nil {
			t.say("no connection: %v", err)
			continue
		}
		t.say("--- dials %s as %q", n.Name, user)
		c := &caller{d: d, w: w, trace: t, conn: conn}
		for range 1 + d.IntN(40) {
			if ctx.Err() != nil {
				break
			}
			if !c.one(ctx) {
				time.Sleep(d.between(0, 300*time.Millisecond)) // the node is gone, or does not let the user in
				break
			}
			if d.chance(.3) {
				time.Sleep(d.between(0, 50*time.Millisecond))
			}
		}
		_ = conn.Close() // of what is under way, too
	}
}

// one makes one call. It is false if the connection is of no use.
func (c *caller) one(ctx context.Context) bool {
	if c.d.chance(.4) {
		f := pick(c.d, (*caller).consumes, (*caller).consumes, (*caller).publishes, (*caller).delays)
		return f(c, ctx)
	}
	m := pick(c.d, calls...)
	if m.Name() == "AddUser" && c.d.chance(.5) {
		return true // hashes of passwords take long
	}
	c.name = string(m.Name())
	patience := c.d.between(time.Millisecond, 3*time.Second)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	desc := &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}
	stream, err := c.conn.NewStream(ctx, desc, name)
	if err != nil {
		return c.ended(name, err)
	}
	err = c.say(ctx, stream, m, true)
	for err == nil && m.IsStreamingClient() && c.d.chance(.9) {
		if err = c.say(ctx, stream, m, false); err == nil && c.d.chance(.4) {
			err = stream.RecvMsg(newOf(m.Output()))
		}
	}
	if c.d.chance(.1) {
		time.Sleep(c.d.between(0, time.Second)) // nothing is read
	}
	if c.d.chance(.1) {
		return true // cancelled
	}
	if err == nil || errors.Is(err, io.EOF) {
		_ = stream.CloseSend()
		for err = nil; err == nil; {
			err = stream.RecvMsg(newOf(m.Output()))
		}
	}
	return c.ended(name, err)
}

func (c *caller) say(_ context.Context, stream grpc.ClientStream, m protoreflect.MethodDescriptor, first bool) error {
	msg := newOf(m.Input())
	c.fill(msg.ProtoReflect(), 4, first)
	c.trace.say("> %s {%.300v}", m.Name(), msg)
	return stream.SendMsg(msg)
}

// ended looks at how a call ended, and says whether others may do better.
func (c *caller) ended(name string, err error) bool {
	if err == nil || errors.Is(err, io.EOF) {
		return true
	}
	st := status.Convert(err)
	c.trace.say("< %s: %s %.200s", name, st.Code(), st.Message())
	c.w.answered("grpc " + st.Code().String())
	switch st.Code() {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		if !strings.Contains(st.Message(), "invalid UTF-8") { // the client's own library refuses that
			c.w.find("internal error", "%s: %s: %s: %s", c.trace.name, name, st.Code(), st.Message())
		}
	case codes.Unauthenticated:
		return false
	case codes.Unavailable:
		return !strings.Contains(st.Message(), "connection")
	}
	return true
}

// newOf makes a message of a type.
func newOf(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // the API's code is linked
	}
	return t.New().Interface()
}

// fill sets some of the fields of a message.
func (c *caller) fill(m protoreflect.Message, depth int, first bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		p := .35
		switch {
		case strings.HasPrefix(string(f.Name()), "binary_"):
			p = .02
		case f.Name() == "arguments" || f.Name() == "bindings":
			p = .1
		case f.Name() == "expiration" || f.Name() == "user_id" || f.Name() == "exclusive" || f.Name() == "vhost":
			p = .05
		case f.Name() == "open" && first:
			p = .95
		case f.Name() == "open":
			p = .02
		case f.Name() == "declare":
			p = .1
		case f.Name() == "queue" || f.Name() == "name" || f.Name() == "message" || f.Name() == "messages" || f.Name() == "credit" || f.Name() == "routing_key":
			p = .9
		}
		if !c.d.chance(p) || f.Message() != nil && depth == 0 {
			continue
		}
		switch {
		case f.IsMap():
			c.fillMap(m.Mutable(f).Map(), f, depth)
		case f.IsList():
			list := m.Mutable(f).List()
			for range c.d.IntN(3) {
				if f.Message() != nil {
					e := list.NewElement()
					c.fill(e.Message(), depth-1, first)
					list.Append(e)
				} else {
					list.Append(c.scalar(f))
				}
			}
		case f.Message() != nil:
			c.fill(m.Mutable(f).Message(), depth-1, first)
		default:
			m.Set(f, c.scalar(f))
		}
	}
}

func (c *caller) fillMap(m protoreflect.Map, f protoreflect.FieldDescriptor, depth int) {
	for range c.d.IntN(3) {
		key := c.scalar(f.MapKey()).MapKey()
		if f.MapValue().Message() == nil {
			m.Set(key, c.scalar(f.MapValue()))
			continue
		}
		v := m.NewValue()
		c.fill(v.Message(), depth-1, true)
		m.Set(key, v)
	}
}

// number is mostly one that makes sense.
func (c *caller) number() int64 {
	if c.d.chance(.9) {
		return c.d.Int64N(12)
	}
	return c.d.number()
}

// scalar is a value of a field.
func (c *caller) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(c.d.chance(.4))
	case protoreflect.EnumKind:
		n := f.Enum().Values().Len()
		if c.d.chance(.02) {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(c.d.number())))
		}
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(c.d.IntN(n)).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(c.number()))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(c.number()))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(c.number())
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(c.number()))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(math.Inf(1)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(pick(c.d, math.NaN(), math.Inf(-1), 0, 1.5))
	case protoreflect.BytesKind:
		size := 100
		if c.d.chance(.03) {
			size = 100_000
		}
		return protoreflect.ValueOfBytes(c.d.bytes(size))
	}
	return protoreflect.ValueOfString(strings.ToValidUTF8(c.text(string(f.Name())), "?"))
}

// text is a value of a field of that name.
func (c *caller) text(name string) string {
	switch {
	case strings.Contains(name, "vhost"):
		return c.d.vhost()
	case name == "name" && (c.name == "AddUser" || c.name == "SetPassword" || c.name == "DeleteUser"):
		return lostUser
	case name == "name" && c.name == "SetTags":
		return pick(c.d, changed...)
	case name == "name" && (c.name == "DeclareQueue" || c.name == "Consume"):
		return c.d.oddly()
	case strings.Contains(name, "user"):
		return pick(c.d, changed...)
	case strings.Contains(name, "password"):
		return password
	case strings.Contains(name, "exchange"), name == "source":
		return c.d.exchangeName()
	case strings.Contains(name, "pattern"), name == "configure", name == "write", name == "read":
		return pick(c.d, ".*", "", "^q", "two", "(")
	case name == "type":
		return pick(c.d, "direct", "fanout", "topic", "headers", "x-delayed-message", "none")
	case strings.Contains(name, "key"):
		return c.d.key()
	}
	return c.d.queueName()
}
