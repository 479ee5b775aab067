package mcpserver

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/drover-dev/drover/internal/api/control"
	"github.com/drover-dev/drover/task"
)

const (
	outputScheme   = "drover"
	outputTemplate = "drover://task/{task_id}/output{?offset,max_bytes}"
	outputType     = "text/plain"
	maxResources   = 100             // in a listing
	maxWatched     = 100             // outputs with subscriptions at once
	updatePace     = time.Second     // between two updates of one output
	outputWait     = 5 * time.Minute // of one request for more output
)

// outputURI is the URI of the output of a task.
func outputURI(id task.ID) string { return outputScheme + "://task/" + string(id) + "/output" }

// parseOutput returns the part of an output that a URI means.
func parseOutput(uri string) (in outputInput, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != outputScheme || u.Host != "task" {
		return in, false
	}
	id, ok := strings.CutSuffix(strings.TrimPrefix(u.Path, "/"), "/output")
	if !ok || id == "" || strings.Contains(id, "/") {
		return in, false
	}
	in.TaskID = id
	for key, values := range u.Query() {
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil || n < 0 || len(values) != 1 {
			return in, false
		}
		switch key {
		case "offset":
			in.Offset = &n
		case "max_bytes":
			in.MaxBytes = int(min(max(n, utf8Max), maxText))
		default:
			return in, false
		}
	}
	return in, true
}

const utf8Max = 4 // bytes of a character

// addResources adds the outputs of tasks.
func (v *service) addResources() {
	v.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "task_output", Title: "Output of a task", URITemplate: outputTemplate, MIMEType: outputType,
		Description: "The output of a task so far: its end, or at most max_bytes from offset on.",
	}, v.readOutput)
	v.mcp.AddReceivingMiddleware(v.listOutputs)
}

// listOutputs adds the newest tasks to the resources.
func (v *service) listOutputs(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		list, ok := res.(*mcp.ListResourcesResult)
		ss, isServer := req.GetSession().(*mcp.ServerSession)
		if err != nil || !ok || !isServer {
			return res, err
		}
		s := v.of(ss)
		ctx, done := s.during(ctx)
		defer done()
		page, err := control.Ask(ctx, s.link, func(api control.API) (control.Page, error) {
			return api.List(ctx, control.ListRequest{All: true, Limit: maxResources})
		})
		if err != nil {
			return nil, plainError(err)
		}
		for _, r := range page.Tasks {
			list.Resources = append(list.Resources, &mcp.Resource{
				URI: outputURI(r.ID), Name: string(r.ID), Title: line(r), MIMEType: outputType, Size: r.OutputBytes,
			})
		}
		return list, nil
	}
}

func (v *service) readOutput(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	in, ok := parseOutput(req.Params.URI)
	if !ok {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	s := v.of(req.Session)
	ctx, done := s.during(ctx)
	defer done()
	text, out, err := s.output(ctx, nil, in)
	if err != nil {
		return nil, noResource(req.Params.URI, err)
	}
	if out.Text == "" {
		text = "" // without the words for an empty output
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
		URI: req.Params.URI, MIMEType: outputType, Text: text,
		Meta: mcp.Meta{
			"drover/offset": out.Offset, "drover/nextOffset": out.NextOffset, "drover/sizeBytes": out.SizeBytes,
			"drover/ended": out.Ended,
		},
	}}}, nil
}

func noResource(uri string, err error) error {
	if control.IsCode(err, control.NotFound) {
		return mcp.ResourceNotFoundError(uri)
	}
	return plainError(err)
}

// watching are the outputs with subscriptions.
type watching struct {
	works sync.WaitGroup // one per output

	mu      sync.Mutex
	outputs map[string]*watched
}

// watched is one output. A client may subscribe more than once.
type watched struct {
	cancel  context.CancelFunc
	clients map[*server]int
}

func (v *service) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	uri, s := req.Params.URI, v.of(req.Session)
	in, ok := parseOutput(uri)
	if !ok || in.Offset != nil || in.MaxBytes > 0 {
		return mcp.ResourceNotFoundError(uri)
	}
	rec, err := s.link.Record(ctx, in.TaskID)
	if err != nil {
		return noResource(uri, err)
	}
	v.watching.mu.Lock()
	defer v.watching.mu.Unlock()
	w := v.watching.outputs[uri]
	if w == nil {
		if len(v.watching.outputs) >= maxWatched {
			return &jsonrpc.Error{
				Code:    jsonrpc.CodeInternalError,
				Message: fmt.Sprintf("%d outputs have subscriptions already (end some first)", maxWatched),
			}
		}
		life, cancel := context.WithCancel(v.alone.life)
		w = &watched{cancel: cancel, clients: map[*server]int{}}
		v.watching.outputs[uri] = w
		v.watching.works.Go(func() {
			defer cancel()
			v.watch(life, uri, string(rec.ID), rec.OutputBytes)
		})
	}
	w.clients[s]++
	if w.clients[s] == 1 && s != v.alone {
		context.AfterFunc(s.life, func() { v.forget(uri, s, true) })
	}
	return nil
}

func (v *service) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	v.forget(req.Params.URI, v.of(req.Session), false)
	return nil
}

// forget ends one or all subscriptions of a client.
func (v *service) forget(uri string, s *server, all bool) {
	v.watching.mu.Lock()
	defer v.watching.mu.Unlock()
	w := v.watching.outputs[uri]
	if w == nil || w.clients[s] == 0 {
		return
	}
	if w.clients[s]--; all || w.clients[s] == 0 {
		delete(w.clients, s)
	}
	if len(w.clients) == 0 {
		w.cancel()
		delete(v.watching.outputs, uri)
	}
}

// watch notifies subscribers when an output has grown and when it has ended, until ctx ends.
func (v *service) watch(ctx context.Context, uri, ref string, from int64) {
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		chunk, err := v.alone.read(ctx, control.OutputRequest{Ref: ref, Offset: from, Max: 1, Wait: outputWait})
		if err != nil {
			return // the task has ended with its session
		}
		if chunk.Size > from || chunk.Ended {
			// An error means that a client has left.
			_ = v.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
		}
		if chunk.Ended {
			return
		}
		from = max(chunk.Size, chunk.Next)
		pace.Reset(updatePace)
	}
}
