// A client of the official library that drives `drover acp`. It prints what it was told, a line
// of JSON for each fact.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk/unstable"; // it has the sessions of subagents

const [name, binary, script, folder] = process.argv.slice(2);
const say = (what, value = null) => console.log(JSON.stringify({ what, value }));

const agent = spawn(binary, ["acp", "--model", "script:" + script], { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const m = acp.methods;

let choice = "allow";
let asked = () => {};
let started = () => {};
const names = new Map(); // of sessions of subagents, by ID
const app = acp
  .client({ name: "cases" })
  .onNotification(m.client.session.update, ({ params }) => {
    const u = params.update;
    const child = names.get(params.sessionId);
    switch (u.sessionUpdate) {
      case "subagent_update":
        if (!names.has(u.sessionId)) names.set(u.sessionId, u.title);
        say("subagent_update", [child ?? "main", names.get(u.sessionId), u.state?.state, u.state?.stopReason ?? null, "cancel" in (u.capabilities ?? {})]);
        if (u.state?.state === "running") started(u.sessionId);
        break;
      case "session_message":
        say("session_message", [child, names.get(u.senderSessionId) ?? "main", names.get(u.recipientSessionId), u.content[0].text]);
        break;
      case "agent_message_chunk":
      case "user_message_chunk":
        say(u.sessionUpdate, child ? [child, u.content.text] : u.content.text);
        break;
      case "tool_call":
        say("tool_call", child ? [child, u.kind, u.title] : [u.kind, u.title]);
        break;
      case "tool_call_update":
        if (u.status === "completed" || u.status === "failed") say("tool_call_update", child ? [child, u.status] : u.status);
        break;
    }
  })
  .onRequest(m.client.session.requestPermission, ({ params }) => {
    const child = names.get(params.sessionId);
    say("asked", child ? [child, params.toolCall.title] : params.options.map((o) => o.kind));
    asked();
    if (choice === "wait") return new Promise(() => {});
    return { outcome: { outcome: "selected", optionId: choice } };
  });

const text = (t) => [{ type: "text", text: t }];
const cases = {
  async children(ctx) {
    await ctx.request(m.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: { subagents: {} } });
    const { sessionId } = await ctx.request(m.agent.session.new, { cwd: folder, mcpServers: [] });
    const prompt = async (t) => say("stop", (await ctx.request(m.agent.session.prompt, { sessionId, prompt: text(t) })).stopReason);
    await prompt("send one");
    started = (id) => ctx.notify(m.agent.session.cancel, { sessionId: id });
    await prompt("send another");
    try {
      await ctx.request(m.agent.session.prompt, { sessionId: [...names.keys()][0], prompt: text("x") });
    } catch (err) {
      say("error", err.code);
    }
  },

  async turns(ctx) {
    const init = await ctx.request(m.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
    say("version", init.protocolVersion);
    const { sessionId } = await ctx.request(m.agent.session.new, { cwd: folder, mcpServers: [] });
    const prompt = async (t) => say("stop", (await ctx.request(m.agent.session.prompt, { sessionId, prompt: text(t) })).stopReason);
    await prompt("make it");
    choice = "reject";
    await prompt("make it again");
    choice = "wait";
    asked = () => ctx.notify(m.agent.session.cancel, { sessionId });
    await prompt("make it once more");
    await ctx.request(m.agent.session.close, { sessionId });
    const { sessions } = await ctx.request(m.agent.session.list, { cwd: folder });
    say("sessions", sessions.map((s) => [s.sessionId === sessionId, s.title]));
    await ctx.request(m.agent.session.load, { sessionId, cwd: folder, mcpServers: [] });
    await prompt("go on");
    try {
      await ctx.request(m.agent.session.prompt, { sessionId: "s00000000", prompt: text("x") });
    } catch (err) {
      say("error", err.code);
    }
  },
};

await app.connectWith(stream, cases[name]);
agent.stdin.end();
const code = await new Promise((resolve) => agent.on("exit", resolve));
say("exit", code);
process.exit(0);
