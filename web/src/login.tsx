import { useState } from "preact/hooks";
import { login } from "./api";
import { Mark } from "./shell";
import { Button, Notice, TextField } from "./ui";

export function Login({ done }: { done: () => void }) {
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const submit = async () => {
    setBusy(true);
    setError("");
    try {
      await login(user, password);
      done();
    } catch (err) {
      setError(err instanceof Error ? err.message : String(err));
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form onSubmit={(e) => { e.preventDefault(); void submit(); }}>
        <h1><Mark /> Warren</h1>
        <TextField label="User" value={user} set={setUser} required autoFocus autoComplete="username" />
        <TextField label="Password" type="password" value={password} set={setPassword} autoComplete="current-password" />
        {error && <Notice tone="bad">{error === "Login failed" ? "Wrong user or password, or this user may not log in from here." : error === "Not management user" ? "This user has none of the tags management, policymaker, monitoring and administrator." : error}</Notice>}
        <Button type="submit" tone="main" busy={busy}>Log in</Button>
        <p class="hint">The login is kept for this tab only. <code>guest</code> logs in from the node's own machine.</p>
      </form>
    </main>
  );
}
