// The official library as a client of `drover serve --a2a`. Usage: node client.mjs CASE CARD TOKEN
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
import { Role, TaskState, taskStateToJSON } from "@a2a-js/sdk";
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";

const [name, address, token] = process.argv.slice(2);
const say = (what, value) => process.stdout.write(JSON.stringify({ what, value: value ?? null }) + "\n");
const fetchImpl = (url, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("Authorization", "Bearer " + token);
  return fetch(url, { ...init, headers });
};
const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
}));
const client = await factory.createFromUrl(address);
const message = (text, more = {}) => ({
  messageId: randomUUID(), role: Role.ROLE_USER, contextId: "", taskId: "", extensions: [], referenceTaskIds: [], metadata: undefined,
  parts: [{ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "text/plain" }], ...more,
});
const config = (more = {}) => ({ acceptedOutputModes: [], taskPushNotificationConfig: undefined, historyLength: undefined,
  returnImmediately: false, ...more });
const ask = (text, more, how) => ({ tenant: "", message: message(text, more), configuration: config(how), metadata: undefined });
const immediately = { returnImmediately: true };
const stateOf = (task) => taskStateToJSON(task.status.state).replace("TASK_STATE_", "");
const textOf = (parts) => (parts ?? []).map((p) => (p.content?.$case === "text" ? p.content.value : "<" + p.content?.$case + ">")).join("");
const resultOf = (task) => (task.artifacts ?? []).map((a) => textOf(a.parts)).join("|");
const told = (task) => ({ state: stateOf(task), result: resultOf(task), says: textOf(task.status.message?.parts) });
const id = (task) => ({ tenant: "", id: task.id, historyLength: undefined });
const code = (err) => `${err.name}: ${err.message}`;
const refused = async (what, call) => {
  try {
    await call();
    say(what, "not refused");
  } catch (err) {
    say(what, code(err));
  }
};
const event = (e) => {
  const v = e.payload?.value;
  switch (e.payload?.$case) {
    case "task": return "task " + stateOf(v);
    case "statusUpdate": return "status " + stateOf(v);
    case "artifactUpdate": return "artifact " + textOf(v.artifact.parts);
  }
  return "other " + JSON.stringify(e);
};
const until = async (task, state) => {
  for (;;) {
    const now = await client.getTask(id(task));
    if (stateOf(now) === state) return now;
    await new Promise((r) => setTimeout(r, 50));
  }
};

const cases = {
  async send() {
    const task = await client.sendMessage(ask("say hello"));
    say("sent", told(task));
    say("got", told(await client.getTask(id(task))));
    say("history", (await client.getTask({ ...id(task), historyLength: 5 })).history.map((m) => textOf(m.parts)));
    const list = await client.listTasks({ tenant: "", contextId: task.contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageToken: "" });
    say("listed", list.tasks.map((t) => t.id === task.id));
    await refused("late", () => client.sendMessage(ask("more", { taskId: task.id })));
    await refused("unknown", () => client.getTask({ tenant: "", id: "a2a-none" }));
    const next = await client.sendMessage(ask("say it again", { contextId: task.contextId }));
    say("same context", next.contextId === task.contextId);
    say("next", told(next));
  },
  async card() {
    const card = await client.getAgentCard();
    say("name", card.name);
    say("skills", card.skills.map((s) => s.id));
  },
  async stream() {
    const seen = [];
    for await (const e of client.sendMessageStream(ask("work a while"))) seen.push(event(e));
    say("first", seen[0].startsWith("task "));
    say("last two", seen.slice(-2));
  },
  async resubscribe() {
    const task = await client.sendMessage(ask("wait for the file", {}, immediately));
    say("at once", ["SUBMITTED", "WORKING"].includes(stateOf(task)));
    const first = new AbortController();
    for await (const e of client.resubscribeTask(id(task), { signal: first.signal })) { // leaves after the first event
      say("subscribed", event(e).startsWith("task "));
      break;
    }
    const seen = [];
    for await (const e of client.resubscribeTask(id(task))) {
      if (seen.length === 0) await fetch(process.env.GO_ON, { method: "POST" });
      seen.push(event(e));
    }
    say("last two", seen.slice(-2));
    await refused("ended", async () => { for await (const _ of client.resubscribeTask(id(task))); });
  },
  async host() {
    const task = await client.sendMessage(ask("wait for the file", {}, immediately));
    await until(task, "WORKING");
    const seen = [];
    for await (const e of client.resubscribeTask(id(task))) {
      if (seen.length === 0) await fetch(process.env.GO_ON + "/kill", { method: "POST" });
      seen.push(event(e));
    }
    say("last", seen.at(-1));
    say("next", told(await client.sendMessage(ask("say hello"))));
  },
  async cancel() {
    const task = await client.sendMessage(ask("wait for the file", {}, immediately));
    await until(task, "WORKING");
    say("canceled", stateOf(await client.cancelTask({ tenant: "", id: task.id, metadata: undefined })));
    say("stays", stateOf(await client.getTask(id(task))));
    const done = await client.sendMessage(ask("say hello"));
    await refused("too late", () => client.cancelTask({ tenant: "", id: done.id, metadata: undefined }));
  },
  async input() {
    const task = await client.sendMessage(ask("touch it"));
    say("asks", told(task));
    await refused("unclear", () => client.sendMessage(ask("what for?", { taskId: task.id })));
    say("allowed", told(await client.sendMessage(ask("allow", { taskId: task.id }))));
    const other = await client.sendMessage(ask("touch it"));
    say("denied", told(await client.sendMessage(ask("deny: not today", { taskId: other.id }))));
    const streamed = [];
    for await (const e of client.sendMessageStream(ask("touch it"))) streamed.push(e);
    say("stream ends", event(streamed.at(-1)).split(" ")[1]); // within the first event, or after it
  },
  async message() {
    const task = await client.sendMessage(ask("wait for the file", {}, immediately));
    await until(task, "WORKING");
    const now = await client.sendMessage(ask("a word in between", { taskId: task.id }, immediately));
    say("same", now.id === task.id);
    await fetch(process.env.GO_ON, { method: "POST" });
    say("read", told(await until(task, "COMPLETED")));
  },
  async push() {
    const got = [];
    let end;
    const ended = new Promise((r) => { end = r; });
    let failed = 0;
    const hook = createServer((req, res) => {
      let body = "";
      req.on("data", (d) => { body += d; });
      req.on("end", () => {
        if (failed++ === 0) { // the first delivery is not taken, and comes again
          res.writeHead(503).end();
          return;
        }
        res.writeHead(204).end();
        const e = JSON.parse(body);
        got.push({ auth: req.headers.authorization, token: req.headers["x-a2a-notification-token"], type: req.headers["content-type"], e });
        if ((e.task?.status ?? e.statusUpdate?.status)?.state === "TASK_STATE_COMPLETED") end();
      });
    });
    await new Promise((r) => hook.listen(0, "127.0.0.1", r));
    const url = `http://127.0.0.1:${hook.address().port}/hook`;
    const push = (more) => ({ tenant: "", id: "", taskId: "", url, token: "tok-1",
      authentication: { scheme: "Bearer", credentials: "cred-1" }, ...more });
    const task = await client.sendMessage(ask("wait for the file", {}, { ...immediately, taskPushNotificationConfig: push({ id: "one" }) }));
    const two = await client.createTaskPushNotificationConfig(push({ taskId: task.id, id: "two", url: url + "2" }));
    say("created", [two.id, two.taskId === task.id]);
    const all = () => client.listTaskPushNotificationConfig({ tenant: "", taskId: task.id, pageSize: 0, pageToken: "" });
    say("listed", (await all()).configs.map((c) => c.id));
    say("got", (await client.getTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "two" })).url.endsWith("hook2"));
    await client.deleteTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "two" });
    await client.deleteTaskPushNotificationConfig({ tenant: "", taskId: task.id, id: "two" });
    say("left", (await all()).configs.map((c) => c.id));
    await refused("elsewhere", () => client.createTaskPushNotificationConfig(push({ taskId: task.id, url: "http://169.254.169.254/latest" })));
    await refused("private", () => client.createTaskPushNotificationConfig(push({ taskId: task.id, url: "https://10.0.0.1/hook" })));
    await fetch(process.env.GO_ON, { method: "POST" });
    await ended;
    hook.close();
    say("bears", [got[0].auth, got[0].token, got[0].type]);
    say("artifact", got.filter((g) => g.e.artifactUpdate).map((g) => textOf2(g.e.artifactUpdate.artifact.parts)));
    say("all of the task", got.every((g) => [g.e.task?.id, g.e.statusUpdate?.taskId, g.e.artifactUpdate?.taskId].includes(task.id)));
  },
};
const textOf2 = (parts) => parts.map((p) => p.text).join("");

await cases[name]();
