package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/drover-dev/drover/agent"
	"github.com/drover-dev/drover/internal/policy"
)

// ruled decides by rules whether a command or a server may connect to a host; done is false if
// somebody is to be asked. The rules of WebFetch speak of hosts.
func (k *Environment) ruled(host string, port int) (v policy.Verdict, done bool, err error) {
	page := (&url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: "/"}).String()
	input, err := json.Marshal(map[string]string{"url": page})
	if err != nil {
		return v, true, err
	}
	v = k.Gate().Decide(agent.Call{Name: "WebFetch", Input: input})
	// A rule for all pages allows reading them, and a command does more.
	if v.Decision == policy.Allow && v.Rule != "WebFetch" {
		return v, true, nil
	}
	if v.Decision == policy.Deny {
		return v, true, fmt.Errorf("%s (without that rule it can be allowed)", v.Reason)
	}
	return v, false, nil
}

// listed decides whether a hook may connect to a host, by rules alone.
func (k *Environment) listed(_ context.Context, host string, port int, _ string) error {
	_, done, err := k.ruled(host, port)
	if done {
		return err
	}
	return unlisted("nobody is asked for hooks", host)
}

func unlisted(why, host string) error {
	return fmt.Errorf("%s (a rule WebFetch(domain:%s), or %s in the setting sandbox.domains, would allow it)", why, host, host)
}

// reach decides whether a command of the agent may connect to a host. What no rule decides is
// asked.
func (k *Environment) reach(ctx context.Context, host string, port int, line string) error {
	v, done, err := k.ruled(host, port)
	if done {
		return err
	}
	// A rule that allows a command trusts it without a sandbox too. A command that runs because
	// the sandbox bounds it is asked about.
	command, err := json.Marshal(map[string]string{"command": line})
	if err != nil {
		return err
	}
	call := agent.Call{Name: "Bash", Input: command}
	c := k.GateOf(call).Decide(call)
	if c.Decision == policy.Allow && c.Rule != "" {
		return nil
	}
	v.Reason = "a command in the sandbox wants to connect to " + host
	return k.askReach(ctx, host, map[string]any{"host": host, "port": port, "command": line}, v)
}

// reachServer decides whether an MCP server in the sandbox may connect to a host.
func (k *Environment) reachServer(ctx context.Context, host string, port int, server string) error {
	select {
	case <-k.gated: // servers start before the rules of the agent are there
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	v, done, err := k.ruled(host, port)
	if done {
		return err
	}
	v.Reason = "the MCP server " + server + " in the sandbox wants to connect to " + host
	return k.askReach(ctx, host, map[string]any{"host": host, "port": port, "server": server}, v)
}

func (k *Environment) askReach(ctx context.Context, host string, about map[string]any, v policy.Verdict) error {
	input, err := json.Marshal(about)
	if err != nil {
		return err
	}
	d, err := k.Gate().Ask(ctx, agent.Call{Name: "Network", Input: input}, v)
	if err != nil {
		return err
	}
	if !d.Allow {
		return unlisted(d.Reason, host)
	}
	return nil
}
