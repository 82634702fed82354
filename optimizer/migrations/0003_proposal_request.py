from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("optimizer", "0002_searches_on_their_own")]

    operations = [
        migrations.AddField(
            model_name="proposal",
            name="request",
            field=models.JSONField(default=dict),
        ),
    ]
