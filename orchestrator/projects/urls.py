from __future__ import annotations

from django.conf import settings
from django.contrib.auth import views
from django.urls import URLPattern, URLResolver, include, path

from orchestrator.projects.views import join

urlpatterns: list[URLPattern | URLResolver] = [
    path("join/<str:secret>/", join, name="join"),
    path(
        "login/",
        views.LoginView.as_view(
            redirect_authenticated_user=True,
            extra_context={"sso": settings.OIDC_NAME if settings.OIDC_ISSUER else ""},
        ),
        name="login",
    ),
    path("logout/", views.LogoutView.as_view(), name="logout"),
    path("password/", views.PasswordChangeView.as_view(), name="password_change"),
    path("password/done/", views.PasswordChangeDoneView.as_view(), name="password_change_done"),
]
if settings.OIDC_ISSUER:
    urlpatterns += [
        path("sso/", include("allauth.socialaccount.providers.openid_connect.urls")),
        path("sso/", include("allauth.socialaccount.urls")),
    ]
