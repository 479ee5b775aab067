// Each case drives the built binary by the official Agent SDK and prints one line of JSON
// per fact; sdk_test.go says what the facts must be.
// node cases.mjs CASE DROVER SCRIPT FOLDER
import { createSdkMcpServer, query, tool } from '@anthropic-ai/claude-agent-sdk';
import { spawn } from 'node:child_process';
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { z } from 'zod';

const [name, drover, script, folder] = process.argv.slice(2);
const fact = (what, value) => console.log(JSON.stringify({ what, value }));

function options(more = {}) {
  return {
    pathToClaudeCodeExecutable: drover, cwd: folder, model: `script:${script}`, env: { ...process.env },
    stderr: (text) => appendFileSync(`${folder}/stderr`, text), spawnClaudeCodeProcess: recorded, ...more,
  };
}

// recorded starts the binary and keeps what it reads and writes, each line behind < or >.
function recorded({ command, args, cwd, env, signal }) {
  const child = spawn(command, args, { cwd, env, signal, stdio: ['pipe', 'pipe', 'pipe'] });
  child.stderr.on('data', (text) => appendFileSync(`${folder}/stderr`, text));
  for (const [name, mark] of [['stdin', '<'], ['stdout', '>']]) {
    const of = child[name];
    const through = new PassThrough();
    let rest = '';
    through.on('data', (text) => {
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const line of lines) appendFileSync(`${folder}/wire`, mark + line + '\n');
    });
    if (name === 'stdin') through.pipe(of); else of.pipe(through);
    of.on('error', () => {});
    Object.defineProperty(child, name, { value: name === 'stdin' ? through : through.pipe(new PassThrough()) });
  }
  return child;
}

// prompts is a stream of prompts that ends when it is told to.
function prompts(first) {
  const queue = [first];
  let wake;
  let over = false;
  const feed = {
    say(text) { queue.push(text); wake?.(); },
    end() { over = true; wake?.(); },
    async *[Symbol.asyncIterator]() {
      for (;;) {
        while (queue.length > 0) {
          const one = queue.shift();
          yield typeof one === 'string'
            ? { type: 'user', message: { role: 'user', content: one }, parent_tool_use_id: null, session_id: '' } : one;
        }
        if (over) return;
        await new Promise((done) => { wake = done; });
      }
    },
  };
  return feed;
}

async function all(q, on = () => {}) {
  for await (const m of q) {
    appendFileSync(`${folder}/lines.ndjson`, JSON.stringify(m) + '\n');
    if (m.type === 'result') fact('result', m.subtype + ': ' + (m.result ?? m.errors));
    await on(m);
  }
  fact('end', true);
}

// memory is the peak of a process and of those that it has started, in KiB.
function memory(pid) {
  const of = new Map();
  for (const name of readdirSync('/proc').filter((n) => /^[0-9]+$/.test(n))) {
    try {
      const status = readFileSync(`/proc/${name}/status`, 'utf8');
      of.set(Number(name), [Number(/PPid:\s+(\d+)/.exec(status)[1]), Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0)]);
    } catch { /* it has ended */ }
  }
  const all = (p) => [...of].filter(([, [parent]]) => parent === p).reduce((sum, [child]) => sum + all(child), of.get(p)?.[1] ?? 0);
  return { process: of.get(pid)?.[1] ?? 0, with_children: all(pid) };
}

const tried = (p) => p.then((v) => v ?? 'ok', (e) => 'error: ' + e.message);

const cases = {
  async simple() { await all(query({ prompt: 'one', options: options() })); },

  async permissions() {
    const canUseTool = async (tool, input, o) => {
      fact('asked', [tool, input.command, o.toolUseID, o.suggestions]);
      return input.command.startsWith('touch')
        ? { behavior: 'allow', updatedInput: { ...input, command: input.command + ' changed' } }
        : { behavior: 'deny', message: 'no way' };
    };
    await all(query({ prompt: 'one', options: options({ canUseTool }) }));
  },

  // A plan that is denied comes again; the mode of the suggestion is that in which it is carried out.
  async plan() {
    const canUseTool = async (tool, input, o) => {
      fact('asked', [tool, input, o.suggestions]);
      return input.plan === 'first'
        ? { behavior: 'deny', message: 'mind the tests' }
        : { behavior: 'allow', updatedInput: { plan: 'third' }, updatedPermissions: o.suggestions };
    };
    await all(query({ prompt: 'one', options: options({ canUseTool, permissionMode: 'plan' }) }), (m) => {
      if (m.subtype === 'status' && m.permissionMode) fact('mode', m.permissionMode);
    });
  },

  // What an MCP server asks is answered by the program, also by one that decides about nothing else.
  async elicitation() {
    const answers = [{ action: 'accept', content: { name: 'Ada' } }, { action: 'decline' }, { action: 'cancel' }, { action: 'accept' }];
    const onElicitation = async (r) => {
      fact('asked', [r.serverName, r.message, r.mode, r.url ?? null, r.elicitationId ?? null, r.requestedSchema?.required ?? null]);
      return answers.shift();
    };
    const mcpServers = { forms: { command: 'node', args: [`${process.cwd()}/forms.mjs`] } };
    const q = query({ prompt: 'one', options: options({ onElicitation, mcpServers, allowedTools: ['mcp__forms'],
      settings: JSON.stringify({ mcp: { startWait: '60s' } }) }) });
    await all(q, (m) => {
      if (m.type === 'user') for (const b of m.message.content) if (b.type === 'tool_result') fact('got', b.content);
    });
  },

  // Without onElicitation the SDK declines.
  async declined() {
    const mcpServers = { forms: { command: 'node', args: [`${process.cwd()}/forms.mjs`] } };
    await all(query({ prompt: 'one', options: options({ mcpServers, allowedTools: ['mcp__forms'],
      settings: JSON.stringify({ mcp: { startWait: '60s' } }) }) }));
  },

  // The questions of the model are answered in the input of its call; a denial may break off the turn.
  async choice() {
    const canUseTool = async (tool, input, o) => {
      if (tool !== 'AskUserQuestion') return { behavior: 'deny', message: 'stop it', interrupt: true };
      fact('asked', [input.questions.map((q) => q.question), o.toolUseID]);
      return { behavior: 'allow', updatedInput: { ...input, answers: { 'Which?': 'that', 'How?': 'fast' } } };
    };
    try {
      await all(query({ prompt: 'one', options: options({ canUseTool }) }), (m) => {
        if (m.type === 'user') for (const b of m.message.content) if (b.type === 'tool_result') fact('got', b.content);
        if (m.type === 'result') fact('why', m.terminal_reason);
      });
    } catch (e) {
      fact('thrown', true);
    }
  },

  async nobody() {
    const canUseTool = async () => { fact('asked', true); return { behavior: 'allow' }; };
    await all(query({ prompt: 'one', options: options({ canUseTool, permissionPrompts: 'none' }) }));
  },

  async hooks() {
    const PreToolUse = [{ matcher: 'Bash', hooks: [async (input, id) => {
      fact('hook', [input.hook_event_name, input.tool_name, id]);
      return { hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision: 'deny', permissionDecisionReason: 'by the hook' } };
    }] }];
    await all(query({ prompt: 'one', options: options({ hooks: { PreToolUse }, permissionMode: 'bypassPermissions', allowDangerouslySkipPermissions: true }) }));
  },

  async mcp() {
    const calc = createSdkMcpServer({ name: 'calc', version: '1', tools: [
      tool('add', 'adds two numbers', { a: z.number(), b: z.number() }, async (x) => ({ content: [{ type: 'text', text: String(x.a + x.b) }] })),
    ] });
    await all(query({ prompt: 'one', options: options({ mcpServers: { calc }, allowedTools: ['mcp__calc__add'] }) }), (m) => {
      if (m.subtype === 'init') fact('servers', m.mcp_servers);
    });
  },

  // Calls of one server run side by side, a server may say something by itself, and its images are seen.
  async mcpmore() {
    let waiting = [];
    const both = async (x) => {
      await new Promise((done) => { waiting.push(done); if (waiting.length === 2) waiting.forEach((go) => go()); });
      return { content: [{ type: 'text', text: 'got ' + x.name }] };
    };
    const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
    const odd = createSdkMcpServer({ name: 'odd one', version: '1', tools: [
      tool('both', 'waits for another call', { name: z.string() }, both, { annotations: { readOnlyHint: true } }),
      tool('picture', 'returns an image', {}, async () => ({ content: [{ type: 'image', mimeType: 'image/png', data: png }] })),
      tool('talk', 'says something by itself', {}, async (x, extra) => {
        await extra.sendNotification({ method: 'notifications/progress', params: { progressToken: 7, progress: 1 } });
        const roots = await extra.sendRequest({ method: 'roots/list' }, z.any()).then(() => 'roots', (e) => e.message);
        return { content: [{ type: 'text', text: roots }] };
      }),
      tool('slow', 'ends when it is interrupted', {}, (x, extra) => new Promise((done) => {
        fact('slow', true);
        extra.signal.addEventListener('abort', () => { fact('cancelled', true); done({ content: [] }); });
        globalThis.interrupt();
      })),
    ] });
    const feed = prompts('one');
    const q = query({ prompt: feed, options: options({ mcpServers: { 'odd one': odd }, allowedTools: ['mcp__odd_one'] }) });
    globalThis.interrupt = () => q.interrupt();
    const said = all(q, (m) => {
      if (m.subtype === 'init') fact('tools', m.tools.filter((name) => name.startsWith('mcp__')));
      if (m.type === 'user') for (const b of m.message.content) {
        if (b.type === 'tool_result') fact('got', typeof b.content === 'string' ? b.content : b.content.map((p) => p.type));
      }
      if (m.type === 'result') feed.end();
    });
    await tried(said); // the result is an error: the turn was interrupted
  },

  // Only the named skills can be used; a plugin brings skills and hooks.
  async skills() {
    const base = `${folder}/.drover/skills`;
    const plugin = `${folder}/plugin`;
    const files = {
      [`${base}/kept/SKILL.md`]: '---\nname: kept\ndescription: is kept\n---\nkept text', [`${base}/other/SKILL.md`]: '---\nname: other\ndescription: is not\n---\nother',
      [`${plugin}/.claude-plugin/plugin.json`]: '{"name":"extra"}',
      [`${plugin}/skills/more/SKILL.md`]: '---\nname: more\ndescription: of a plugin\n---\nmore text',
      [`${plugin}/hooks/hooks.json`]: JSON.stringify({ hooks: { UserPromptSubmit: [{ hooks: [{ type: 'command',
        command: `basename "$CLAUDE_PLUGIN_ROOT" > ${folder}/hooked` }] }] } }),
    };
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(path.slice(0, path.lastIndexOf('/')), { recursive: true });
      writeFileSync(path, text);
    }
    await all(query({ prompt: 'one', options: options({ skills: ['kept', 'extra:more', 'missing'],
      plugins: [{ type: 'local', path: plugin }] }) }), (m) => {
      if (m.subtype === 'init') fact('skills', m.skills);
      if (m.type === 'user') for (const b of m.message.content) if (b.type === 'tool_result') fact('got', b.content.split('\n').pop() || b.content);
    });
    fact('hooked', readFileSync(`${folder}/hooked`, 'utf8'));
  },

  // Servers may come with the first line; one that does not start hinders nobody.
  async delivery() {
    const mcpServers = { gone: { command: 'false' } };
    await all(query({ prompt: 'one', options: options({ mcpServers, mcpServersDelivery: 'initialize' }) }));
  },

  async agents() {
    const agents = { greeter: { description: 'greets', prompt: 'greet', tools: ['Read'] } };
    const q = query({ prompt: 'one', options: options({ agents, permissionMode: 'bypassPermissions', allowDangerouslySkipPermissions: true }) });
    fact('offered', (await q.supportedAgents()).filter((a) => a.name === 'greeter'));
    fact('commands', (await q.supportedCommands()).some((c) => c.name === 'compact' && c.description !== ''));
    await all(q, (m) => { if (m.subtype === 'task_notification') fact('told', [m.status, m.summary]); });
  },

  async agent() {
    const agents = { greeter: { description: 'greets', prompt: 'greet in Latin', tools: ['Read'] } };
    await all(query({ prompt: 'one', options: options({ agents, agent: 'greeter' }) }), (m) => {
      if (m.subtype === 'init') fact('tools', m.tools);
    });
    try {
      await all(query({ prompt: 'one', options: options({ agents, agent: 'nobody' }) }));
    } catch (e) {
      fact('thrown', true);
    }
  },

  async live() {
    const feed = prompts({ type: 'user', uuid: '11111111-1111-4111-8111-111111111111', message: { role: 'user', content: 'one' },
      parent_tool_use_id: null, session_id: '' });
    const q = query({ prompt: feed, options: options({ permissionMode: 'plan' }) });
    let n = 0;
    await all(q, async (m) => {
      if (m.type === 'command_lifecycle') fact('lifecycle', [m.command_uuid, m.state]);
      if (m.type !== 'result' || n++ > 0) { if (n > 1) feed.end(); return; }
      fact('mode', await tried(q.setPermissionMode('bypassPermissions')));
      fact('wrong mode', await tried(q.setPermissionMode('wild')));
      fact('model', await tried(q.setModel(`script:${script.replace(".yaml", "-second.yaml")}`)));
      fact('thinking', await tried(q.setMaxThinkingTokens(2000)));
      fact('no thinking limit', await tried(q.setMaxThinkingTokens(null)));
      for (const [what, ask] of Object.entries({
        reconnect: () => q.reconnectMcpServer('x'), toggle: () => q.toggleMcpServer('x', false),
        servers: () => q.setMcpServers({ x: { command: 'false' } }), plugins: () => q.reloadPlugins(),
      })) fact('refused ' + what, await tried(ask()));
      fact('context', (await q.getContextUsage()).totalTokens > 0);
      fact('servers', await tried(q.mcpServerStatus()));
      fact('rewind', await tried(q.rewindFiles('11111111-1111-4111-8111-111111111111')));
      feed.say('two');
    });
  },

  async interrupt() {
    const feed = prompts('one');
    const q = query({ prompt: feed, options: options({ permissionMode: 'bypassPermissions', allowDangerouslySkipPermissions: true }) });
    let n = 0;
    await all(q, async (m) => {
      if (m.subtype === 'task_started') { fact('interrupted', await tried(q.interrupt())); }
      if (m.type === 'result' && n++ === 0) feed.say('two');
      else if (m.type === 'result') feed.end();
    });
  },

  async background() {
    const feed = prompts('one');
    const q = query({ prompt: feed, options: options({ permissionMode: 'bypassPermissions', allowDangerouslySkipPermissions: true }) });
    await all(q, async (m) => {
      if (m.subtype === 'task_started' && !m.is_backgrounded) fact('moved', await tried(q.backgroundTasks(m.tool_use_id)));
      if (m.subtype === 'task_updated' && m.patch.is_backgrounded) fact('backgrounded', true);
      if (m.type === 'result' && !m.origin) {
        fact('stopped', await tried(q.stopTask(JSON.parse(JSON.stringify(q.lastTask ?? globalThis.task)))));
        feed.end();
      }
      if (m.subtype === 'task_started') globalThis.task = m.task_id;
      if (m.subtype === 'task_notification') fact('told', m.status);
    });
  },

  async resume() {
    let id;
    await all(query({ prompt: 'one', options: options() }), (m) => { id = m.session_id; });
    const own = '22222222-2222-4222-8222-222222222222';
    let fork;
    await all(query({ prompt: 'two', options: options({ resume: id, forkSession: true, sessionId: own }) }), (m) => { fork = m.session_id; });
    fact('fork', fork === own);
    let again;
    await all(query({ prompt: 'three', options: options({ resume: own }) }), (m) => { again = m.session_id; });
    fact('same', again === own);
  },

  async options() {
    await all(query({ prompt: 'one', options: options({
      settingSources: [], effort: 'high', includeHookEvents: true, strictMcpConfig: true, maxTurns: 5,
      maxBudgetUsd: 1, disallowedTools: ['WebFetch'], allowedTools: ['Skill(pdf)', 'Read'], additionalDirectories: [folder],
      systemPrompt: { type: 'preset', preset: 'claude_code', append: 'be kind' }, includePartialMessages: true,
      title: 'a title', promptSuggestions: true, agentProgressSummaries: true, forwardSubagentText: true, skills: ['pdf'],
      thinking: { type: 'enabled', budgetTokens: 2000 }, persistSession: false, betas: ['context-1m-2025-08-07'],
      extraArgs: { 'replay-user-messages': null, 'from-the-future': 'x' },
    }) }));
  },

  async structured() {
    const outputFormat = { type: 'json_schema', schema: z.toJSONSchema(z.object({ sum: z.number(), note: z.string().optional() })) };
    try {
      await all(query({ prompt: 'one', options: options({ outputFormat }) }), (m) => {
        if (m.type === 'result') fact('value', m.structured_output ?? null);
      });
    } catch (e) {
      fact('thrown', true);
    }
  },

  async fallback() {
    const other = `script:${script.replace('.yaml', '-second.yaml')}`;
    await all(query({ prompt: 'one', options: options({ fallbackModel: other, model: `script:${script}` }) }), (m) => {
      if (m.type === 'system' && m.tag === 'model_fallback') fact('fell back', [m.level, m.content]);
      if (m.type === 'assistant') fact('from', m.message.model);
      if (m.type === 'result') fact('used', Object.keys(m.modelUsage));
    });
  },

  async hookevents() {
    const command = { type: 'command', command: `cat >> ${folder}/input; echo out; echo err >&2` };
    const settings = JSON.stringify({ hooks: { PreToolUse: [{ matcher: 'Bash', hooks: [command] }] } });
    const UserPromptSubmit = [{ hooks: [async () => ({ continue: true })] }];
    const q = query({ prompt: 'one', options: options({ settings, hooks: { UserPromptSubmit }, includeHookEvents: true, effort: 'high' }) });
    await all(q, (m) => {
      if (m.subtype === 'hook_started') fact('started', m.hook_name);
      if (m.subtype === 'hook_response') fact('ended', [m.hook_event, m.stdout, m.stderr, m.exit_code ?? null, m.outcome]);
    });
  },

  // What one prompt costs: script is the model's name, and the server is in the environment.
  async figures() {
    const began = performance.now();
    let answered;
    const q = query({ prompt: 'Say hello.', options: options({ model: script, settingSources: [], spawnClaudeCodeProcess: (o) => {
      const child = recorded(o);
      globalThis.child = child.pid;
      return child;
    } }) });
    for await (const m of q) {
      if (m.type !== 'result') continue;
      answered = performance.now() - began;
      fact('answer', m.subtype + ': ' + (m.result ?? m.errors));
      fact('peak_kib', memory(globalThis.child));
    }
    fact('answered_ms', Math.round(answered));
    fact('ended_ms', Math.round(performance.now() - began));
  },

  async abort() {
    const abortController = new AbortController();
    const q = query({ prompt: 'one', options: options({ abortController, permissionMode: 'bypassPermissions', allowDangerouslySkipPermissions: true }) });
    try {
      await all(q, (m) => { if (m.subtype === 'task_started') abortController.abort(); });
    } catch (e) {
      fact('aborted', e.name);
    }
  },
};

await cases[name]();
