import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { loggedIn, whenLoggedOut } from "./api";
import { forget, useApi } from "./data";
import { Login } from "./login";
import { routes } from "./routes";
import { useRoute } from "./route";
import { applyTheme, Shell } from "./shell";
import { MeContext } from "./me";
import "./style.css";
import type { Whoami } from "./types";
import { Empty, Page } from "./ui";

function App() {
  const [inside, set] = useState(loggedIn());
  useEffect(() => whenLoggedOut(() => { forget(); set(false); }), []);
  return inside ? <Inside /> : <Login done={() => set(true)} />;
}

function Inside() {
  const route = useRoute();
  const me = useApi<Whoami>("whoami", 0);
  const [, again] = useState(0);
  useEffect(() => {
    const on = () => again((n) => n + 1);
    addEventListener("themechange", on);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", on);
    return () => {
      removeEventListener("themechange", on);
      media.removeEventListener("change", on);
    };
  }, []);
  useEffect(() => { document.getElementById("main")?.scrollTo(0, 0); scrollTo(0, 0); }, [route.parts.join("/")]);
  const shown = routes(route);
  return (
    <MeContext.Provider value={me.data}>
      <Shell me={me.data}>
        <div key={route.parts.join("/")}>{shown ?? <Page title="Not found"><Empty>There is no such page. <a href="#/">Overview</a></Empty></Page>}</div>
      </Shell>
    </MeContext.Provider>
  );
}

applyTheme();
render(<App />, document.getElementById("app")!);
