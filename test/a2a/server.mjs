// The official library as an agent for `remote_agent` tasks. Usage: node server.mjs PORT [nostream]; it prints its address
// and then what it was asked for, a line each. What it does is in the text of the message.
import express from "express";
import { randomUUID } from "node:crypto";
import { Role, TaskState } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { agentCardHandler, jsonRpcHandler, UserBuilder } from "@a2a-js/sdk/server/express";

const [port, mode] = process.argv.slice(2);
const log = (...words) => process.stdout.write(words.join(" ") + "\n");
const textOf = (m) => m.parts.map((p) => (p.content?.$case === "text" ? p.content.value : "")).join("");
const part = (text) => ({ content: { $case: "text", value: text }, metadata: undefined, filename: "", mediaType: "text/plain" });
const S = TaskState;
const going = new Map(); // by task: what ends a wait

class Executor {
  async execute(ctx, bus) {
    const { taskId, contextId, userMessage: m } = ctx;
    const said = textOf(m);
    log("asked", JSON.stringify(said), ctx.task ? "again" : "new");
    const message = (text) => ({ messageId: randomUUID(), role: Role.ROLE_AGENT, contextId, taskId, parts: [part(text)],
      extensions: [], referenceTaskIds: [], metadata: undefined });
    const status = (state, text) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, metadata: undefined,
      status: { state, message: text ? message(text) : undefined, timestamp: new Date().toISOString() } }));
    const artifact = (id, text, append, lastChunk) => bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, append, lastChunk,
      metadata: undefined, artifact: { artifactId: id, name: id, description: "", parts: [part(text)], extensions: [], metadata: undefined } }));
    if (said === "just say") {
      bus.publish(AgentEvent.message(message("only a message")));
      bus.finished();
      return;
    }
    if (!ctx.task) {
      bus.publish(AgentEvent.task({ id: taskId, contextId, status: { state: S.TASK_STATE_SUBMITTED, message: undefined,
        timestamp: new Date().toISOString() }, artifacts: [], history: [m], metadata: m.metadata }));
    }
    const waiting = () => new Promise((r) => going.set(taskId, r));
    switch (said) {
      case "work":
        status(S.TASK_STATE_WORKING, "thinking about it");
        artifact("a", "first ", false, false);
        artifact("a", "second", true, true);
        artifact("b", "third", false, true);
        status(S.TASK_STATE_COMPLETED);
        break;
      case "wait": {
        status(S.TASK_STATE_WORKING, "waiting");
        artifact("a", "before\n", false, false);
        const how = await waiting();
        if (how === "cancel") {
          status(S.TASK_STATE_CANCELED, "as you wish");
          break;
        }
        artifact("a", "after\n", true, true);
        status(S.TASK_STATE_COMPLETED);
        break;
      }
      case "ask":
        status(S.TASK_STATE_INPUT_REQUIRED, "Which colour?");
        break;
      case "fail":
        status(S.TASK_STATE_FAILED, "it broke");
        break;
      case "refuse":
        status(S.TASK_STATE_REJECTED, "not my work");
        break;
      default: // an answer
        artifact("a", "painted " + said, false, true);
        status(S.TASK_STATE_COMPLETED);
    }
    bus.finished();
  }

  async cancelTask(taskId) {
    log("cancel", taskId);
    going.get(taskId)?.("cancel");
  }
}

const app = express();
const listener = app.listen(Number(port), "127.0.0.1", () => {
  const at = `http://127.0.0.1:${listener.address().port}`;
  const card = {
    name: "Painter", description: "Paints.", version: "1", provider: undefined, documentationUrl: "", iconUrl: "",
    supportedInterfaces: [{ url: at + "/rpc", protocolBinding: "JSONRPC", tenant: "", protocolVersion: "1.0" }],
    capabilities: { streaming: mode !== "nostream", pushNotifications: false, extensions: [], extendedAgentCard: false },
    securitySchemes: {}, securityRequirements: [], defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain"],
    skills: [{ id: "paint", name: "Paint", description: "Paints.", tags: ["paint"], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }],
    signatures: [],
  };
  const handler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
  app.use((req, res, next) => {
    if (req.path === "/go") {
      for (const go of going.values()) go("go");
      return res.sendStatus(204);
    }
    if (req.headers.authorization !== "Bearer painter-token") return res.status(401).json({ error: { message: "who are you?" } });
    next();
  });
  app.use("/rpc", (req, _res, next) => {
    let body = "";
    req.on("data", (d) => { body += d; });
    req.on("end", () => log("method", JSON.parse(body).method));
    next();
  }, jsonRpcHandler({ requestHandler: handler, userBuilder: UserBuilder.noAuthentication }));
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: handler }));
  log(at);
});
