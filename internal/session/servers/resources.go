package servers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/session/environment"
	"github.com/drover-dev/drover/internal/tool/mcptool"
	"github.com/drover-dev/drover/internal/tool/toolkit"
)

// Bounds of the lists of a server other than tools.
const (
	maxListed      = 1000
	maxListedPages = 20
)

// resourceTools are the tools for resources, if the agent may have them and a server
// offers resources.
func (a *Agent) resourceTools() []agent.Tool {
	x := a.cfg.Access
	offers := false
	for _, one := range a.served {
		conn, _ := one.lease.Peek()
		offers = offers || !one.late && conn != nil && conn.Offers("resources")
	}
	if !offers {
		return nil
	}
	all := mcptool.Resources(mcptool.ResourceConfig{List: a.listResources, Read: a.readResource, Limit: a.cfg.Limit,
		Spill: a.s.spill, Save: a.s.save})
	var out []agent.Tool
	for _, t := range all {
		name := t.Spec().Name
		if (x.Tools == nil || environment.CoveredBy(x.Tools, name)) && !environment.CoveredBy(x.Barred, name) {
			out = append(out, t)
		}
	}
	return out
}

// find is a server of the agent, by its name or by its form in the names of tools.
func (a *Agent) find(name string) *use {
	for _, one := range a.served {
		if one.Name == name {
			return one
		}
	}
	for _, one := range a.served {
		if mcptool.ServerName(one.Name) == name {
			return one
		}
	}
	return nil
}

func (a *Agent) unknown(name string) error {
	var names []string
	for _, one := range a.served {
		names = append(names, one.Name)
	}
	return &toolkit.Refusal{Text: fmt.Sprintf("there is no MCP server %q (there are: %s)", excerpt.Line(name, 80),
		strings.Join(names, ", "))}
}

// listResources asks one server, or all that offer resources, for their lists.
func (a *Agent) listResources(ctx context.Context, server string) ([]mcptool.Listed, error) {
	some := a.served
	if server != "" {
		one := a.find(server)
		if one == nil {
			return nil, a.unknown(server)
		}
		some = []*use{one}
	}
	var out []mcptool.Listed
	var errs []error
	for _, one := range some {
		conn, err := one.lease.Conn(ctx)
		if err == nil && !conn.Offers("resources") {
			continue
		}
		if err == nil {
			var list []mcptool.Listed
			list, err = resourcesOf(ctx, conn, one.Name)
			out = append(out, list...)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); len(out) == 0 && err != nil {
		return nil, err
	}
	return out, nil
}

func resourcesOf(ctx context.Context, conn *mcpclient.Conn, server string) ([]mcptool.Listed, error) {
	var out []mcptool.Listed
	take := func(raw json.RawMessage) error {
		var page struct {
			Resources, ResourceTemplates []struct {
				URI         string `json:"uri"`
				Template    string `json:"uriTemplate"`
				Name        string `json:"name"`
				Title       string `json:"title"`
				Description string `json:"description"`
				MimeType    string `json:"mimeType"`
			}
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return err
		}
		for _, r := range append(page.Resources, page.ResourceTemplates...) {
			if len(out) < maxListed && (r.URI != "" || r.Template != "") {
				out = append(out, mcptool.Listed{Server: server, URI: r.URI, Template: r.Template, Name: r.Name, Title: r.Title,
					Description: r.Description, MimeType: r.MimeType})
			}
		}
		return nil
	}
	if err := pages(ctx, conn, "resources/list", take); err != nil {
		return nil, err
	}
	err := pages(ctx, conn, "resources/templates/list", take)
	var rpc *mcpclient.RPCError
	if errors.As(err, &rpc) { // many servers have none
		err = nil
	}
	return out, err
}

// pages reads a list to its end, or to the bound.
func pages(ctx context.Context, conn *mcpclient.Conn, method string, take func(json.RawMessage) error) error {
	cursor := ""
	for range maxListedPages {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		raw, err := conn.Call(ctx, method, params)
		if err != nil {
			return err
		}
		var next struct {
			Cursor string `json:"nextCursor"`
		}
		if err := errors.Join(take(raw), json.Unmarshal(raw, &next)); err != nil {
			return fmt.Errorf("%s of MCP server %s is not understood: %w", method, conn.Name(), err)
		}
		if cursor = next.Cursor; cursor == "" {
			break
		}
	}
	return nil
}

func (a *Agent) readResource(ctx context.Context, server, uri string) (json.RawMessage, error) {
	one := a.find(server)
	if one == nil {
		return nil, a.unknown(server)
	}
	conn, err := one.lease.Conn(ctx)
	if err != nil {
		return nil, err
	}
	own, stop := a.answering(conn, one.Name)
	defer stop()
	return conn.CallOpt(ctx, "resources/read", map[string]string{"uri": uri},
		mcpclient.CallOptions{Timeout: one.Server.Server.Timeout(), Answer: own})
}

// save keeps a file that a server gave.
func (s *Servers) save(id, kind string, data []byte) (string, error) {
	end := ".bin"
	if all, _ := mime.ExtensionsByType(kind); len(all) > 0 {
		end = all[0]
	}
	path := filepath.Join(s.place.Tasks(), "mcp-"+plainName(id)+"-"+strings.ToLower(rand.Text()[:8])+end)
	if err := s.place.Project().Root().WriteAtomic(path, data); err != nil {
		return "", err
	}
	return path, nil
}
