"""What an attacker learns from an obfuscated job."""
