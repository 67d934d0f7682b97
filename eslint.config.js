import js from "@eslint/js";

export default [
  { ignores: ["**", "!gradviz/", "!gradviz/page/", "!gradviz/page/web/", "!gradviz/page/web/*.js"] },
  js.configs.recommended,
  {
    rules: {
      "no-undef": "off", // tsc knows the names of a browser
      "prefer-const": "error",
      "no-var": "error",
      eqeqeq: "error",
      "object-shorthand": "error",
      "no-nested-ternary": "off",
    },
  },
];
